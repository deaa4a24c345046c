/* SPDX-License-Identifier: Apache-2.0
 *
 * A CA rotation of one field, from "B is in the sources" to "A is gone everywhere". README.md beside this file says what
 * it shows and what it assumes; tests/model checks it.
 *
 * A set of CAs is a byte of bits. live are the CAs of the certificates that the servers show. A node reaches the API
 * server only if it trusts one of them, so that one that trusts none is lost for good. That no node is lost is asserted
 * wherever what a node trusts or what is live changes. The formula at the end says that each fair run ends with B alone
 * everywhere.
 *
 * Each macro takes one protection out: NOGATE, NOASK, NOEDIT, NOHOLD, NOWAIT, OLDIMAGE.
 */
#ifndef FAULTS
#define FAULTS 1
#endif

#define NODES 2
#define A 1
#define B 2

byte should = A;		/* what the owner of the CAs put into the sources of the NodeBundle */
byte missing = 0;		/* what the sources lack of it for less time than a hold */
bool current = false;		/* the publisher's last question is about the sources as they are */
bool settled = true;		/* all nodes are known to have what the sources hold, and nothing else is published */
byte published = A;		/* what the ControllerConfig holds */
byte live = A;
byte image = A;			/* what a machine trusts that was installed just now */
byte faults = FAULTS;		/* how many more may happen */

byte trusted[NODES];		/* on the node's disk */
byte seen[NODES];		/* what its agent last read; nothing after a start */
bool asked[NODES];		/* that was the version with the last question, or a later one */
byte reported[NODES];		/* what it last reported of trusted */
bool answered[NODES];		/* the report is of that version, or a later one */
bool on[NODES];
bool paused[NODES];

#define source		(should & ~missing)
#define lost(n)		(on[n] && !(trusted[n] & live))
#define reaches(n)	(on[n] && (trusted[n] & live))
#define nobody_lost	(!lost(0) && !lost(1))

#ifdef NOASK			/* what was reported before the question counts, too */
#define has(n, set)	((reported[n] & (set)) == (set))
#else
#define has(n, set)	(answered[n] && (reported[n] & (set)) == (set))
#endif
#define all_have(set)	(has(0, set) && has(1, set))
#define all_trust(set)	(trusted[0] == set && trusted[1] == set)

#ifdef NOHOLD
#define held(n)		false
#else				/* a hold outlasts a short lack, and ends only while the agent reads on */
#define held(n)		((should & ~published) || missing || seen[n] != published)
#endif

/* The agent reads, grows at once, and reports. Its power may be lost between any two of these. */
proctype agent(byte n)
{
	do
	:: atomic { reaches(n) -> seen[n] = published; asked[n] = true }
	   if
	   :: atomic { on[n] && seen[n] -> trusted[n] = trusted[n] | seen[n] }
	   :: !on[n] || !seen[n]
	   fi;
	   if
	   :: atomic { reaches(n) && seen[n] -> reported[n] = trusted[n]; answered[n] = asked[n] }
	   :: !reaches(n) || !seen[n]
	   fi
	od
}

/* What is no longer published goes when its hold is over, and never before what is new has come. */
proctype removal(byte n)
{
	do
	:: atomic { on[n] && !paused[n] && seen[n] && !(seen[n] & ~trusted[n]) && (trusted[n] & ~seen[n]) && !held(n) ->
		trusted[n] = trusted[n] & seen[n]; assert(nobody_lost) }
	od
}

#define edited		settled = false; current = false

inline ask() {
	byte i;
	i = 0;
	do
	:: i < NODES -> asked[i] = false; answered[i] = false; i++
	:: else -> i = 0; break
	od
}

/* The publisher grows at once. Of each version of the sources it asks the nodes once, by a new version of the
 * ControllerConfig. When all have answered that they have what the sources hold, everything else goes. Sources that have
 * become empty are left alone. */
proctype publisher()
{
	byte left;

	do
	:: atomic { source & ~published -> published = published | source }
	:: atomic { !settled && source && !(source & ~published) -> left = source; current = true; ask() }
	   if
#if defined(NOGATE)
	   :: atomic { current -> published = left; settled = true }
	   :: !current
#elif defined(NOEDIT)
	   :: atomic { source == left && all_have(left) -> published = left; settled = true }
	   :: source != left
#else
	   :: atomic { current && all_have(left) -> published = left; settled = true }
	   :: !current
#endif
	   fi
	od
}

/* The owner of the CAs adds B, renews the image, and has the servers renewed one by one. The last server that A signed
 * goes when every node is known to trust B: when the publisher has settled the sources. It does not matter whether these
 * still have A. */
proctype owner()
{
	atomic { should = A | B; edited }
#ifndef OLDIMAGE
	image = A | B;
#endif
	atomic { live = A | B; assert(nobody_lost) }
	if
	:: atomic { should = A | B; edited }	/* a new question, now that the image has B */
#ifndef NOWAIT
	   settled && !missing;
#endif
	   atomic { live = B; assert(nobody_lost) }
	   atomic { should = B; edited }
	:: atomic { should = B; edited }
#ifndef NOWAIT
	   settled && !missing;
#endif
	   atomic { live = B; assert(nobody_lost) }
	fi
}

/* What goes wrong. */
proctype fault()
{
	byte n;

	do
	:: break
	:: faults > 0 ->
		faults--;
		if :: n = 0 :: n = 1 fi;
		if
		:: on[n] = false					/* power is lost */
		:: atomic { on[n] = false; trusted[n] = image }		/* the machine is installed again */
		:: paused[n] = true
		:: atomic { should == (A | B) -> edited; if :: missing = A :: missing = B fi }
		fi
	od
}

/* And what ends that at last. */
proctype start()
{
	do
	:: atomic { !on[0] -> seen[0] = 0; on[0] = true; assert(nobody_lost) }
	:: atomic { !on[1] -> seen[1] = 0; on[1] = true; assert(nobody_lost) }
	od
}
proctype resume() { do :: paused[0] -> paused[0] = false :: paused[1] -> paused[1] = false od }
proctype refill() { do :: atomic { missing -> missing = 0; edited } od }

init {
	byte n;
	atomic {
		do
		:: n < NODES -> trusted[n] = A; reported[n] = A; on[n] = true; run agent(n); run removal(n); n++
		:: else -> break
		od;
		run publisher(); run owner(); run fault(); run start(); run resume(); run refill()
	}
}

ltl converges { <>[] (published == B && all_trust(B)) }
