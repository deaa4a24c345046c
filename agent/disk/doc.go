// SPDX-License-Identifier: Apache-2.0

// Package disk owns every change of a file that this project makes: it observes managed files,
// stages and commits new ones, removes what we own, and sweeps what a killed commit left behind. It
// is the only user of renameio.
//
// It promises that a managed path holds a complete version at every instant (it is renamed over,
// never opened for writing), that nothing visible changes before everything is staged and on stable
// storage, and that a commit that returned nil survives a loss of power. It refuses to touch what is
// not a regular file, and it never follows a symbolic link that somebody other than root could have
// made.
//
// It does not promise atomicity over several files: a failed rename stops the commit, and the next
// reconcile plans again from disk. Nor does it defend against root, who may change a directory between
// our look at it and our act.
//
// Sources: rename(2), fsync(2), open(2), flock(2); google/renameio v2 for the staging itself; Theodore
// Ts'o on why the fsync before the rename is needed (quoted in renameio's CloseAtomicallyReplace).
package disk
