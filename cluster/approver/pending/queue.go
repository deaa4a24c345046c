// SPDX-License-Identifier: Apache-2.0

package pending

import (
	"container/heap"
	"sync"
	"time"
)

// Class is how urgent a request is.
type Class int

// The classes.
const (
	// Renewal is of a node that has an identity, and loses it if nobody answers.
	Renewal Class = iota
	// First is everything else.
	First

	classes
)

// every is how often a request of class First is taken although renewals wait: an agent that was taken over
// can make renewals without end.
const every = 4

// The wait after an error of the API server, which doubles from the one to the other.
const (
	firstRetry = 100 * time.Millisecond
	lastRetry  = time.Minute
)

// soonest is the least wait before a request that was left is looked at again.
const soonest = time.Second

// Queue is the order of work: classes first, then requesters in turn, then requests as they became due. It is
// safe for concurrent use. An item is a name; it is waiting, or in hand after Next, or neither.
type Queue struct {
	firstWait, lastWait time.Duration
	wake                chan struct{}

	mu      sync.Mutex
	items   map[string]*item
	delayed byTime
	ready   [classes]lines
	turn    int
}

// NewQueue makes an empty one. What is left is judged again after firstWait, which doubles up to lastWait.
func NewQueue(firstWait, lastWait time.Duration) *Queue {
	q := &Queue{firstWait: firstWait, lastWait: lastWait, wake: make(chan struct{}, 1), items: map[string]*item{}}
	for c := range q.ready {
		q.ready[c].of = map[string]*line{}
	}
	return q
}

// Wake receives after something was added. It may do so once too often.
func (q *Queue) Wake() <-chan struct{} { return q.wake }

// Add has an item judged at the given time, or when it is due anyway if that is sooner. It counts as one that
// was never left.
func (q *Queue) Add(name string, c Class, requester string, at time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := q.items[name]
	if i == nil {
		i = &item{name: name, index: nowhere}
		q.items[name] = i
	}
	if i.index != nowhere && i.class == c && i.requester == requester && !at.Before(i.at) {
		i.tries = 0
		return
	}
	q.take(i)
	i.class, i.requester, i.tries, i.failures = c, requester, 0, 0
	q.delay(i, at)
	select {
	case q.wake <- struct{}{}:
	default: // it has not been heard yet
	}
}

// Drop forgets an item.
func (q *Queue) Drop(name string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if i := q.items[name]; i != nil {
		q.take(i)
		delete(q.items, name)
	}
}

// Next takes the item that is to be judged now. It is false if none is due.
func (q *Queue) Next(now time.Time) (name string, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.delayed) > 0 && !q.delayed[0].at.After(now) {
		i := heap.Pop(&q.delayed).(*item)
		q.ready[i.class].add(i)
	}
	one, other := &q.ready[Renewal], &q.ready[First]
	if q.turn%every == every-1 {
		one, other = other, one
	}
	i := one.next()
	if i == nil {
		i = other.next()
	}
	if i == nil {
		return "", false
	}
	q.turn++
	return i.name, true
}

// Due is when the next item is due that was not when Next was asked last, or zero.
func (q *Queue) Due() time.Time {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.delayed) == 0 {
		return time.Time{}
	}
	return q.delayed[0].at
}

// Left notes that the item in hand was judged and left: it is due again later each time, or at the given time
// if that is not zero and sooner.
func (q *Queue) Left(name string, now, again time.Time) {
	q.again(name, func(i *item) time.Time {
		wait := grown(q.firstWait, q.lastWait, i.tries)
		if sooner := max(again.Sub(now), soonest); !again.IsZero() && sooner < wait {
			wait = sooner
		}
		i.tries, i.failures = i.tries+1, 0
		return now.Add(wait)
	})
}

// Failed notes that the item in hand could not be judged.
func (q *Queue) Failed(name string, now time.Time) {
	q.again(name, func(i *item) time.Time {
		i.failures++
		return now.Add(grown(firstRetry, lastRetry, i.failures-1))
	})
}

// Defer puts the item in hand off, as if it had not been taken.
func (q *Queue) Defer(name string, until time.Time) {
	q.again(name, func(*item) time.Time { return until })
}

// again makes the item in hand wait, unless it is gone, or was added meanwhile and waits already.
func (q *Queue) again(name string, due func(*item) time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if i := q.items[name]; i != nil && i.index == nowhere {
		q.delay(i, due(i))
	}
}

func grown(first, last time.Duration, times int) time.Duration {
	for ; times > 0 && first < last; times-- {
		first *= 2
	}
	return min(first, last)
}

func (q *Queue) delay(i *item, at time.Time) {
	i.at, i.ready = at, false
	heap.Push(&q.delayed, i)
}

// take takes an item from wherever it waits.
func (q *Queue) take(i *item) {
	switch {
	case i.index == nowhere:
	case i.ready:
		heap.Remove(&q.ready[i.class].of[i.requester].items, i.index)
	default:
		heap.Remove(&q.delayed, i.index)
	}
}

// lines are the items of one class that are due, by requester.
type lines struct {
	of    map[string]*line
	turns []string
}

// line is in turns exactly once as long as it is in the map.
type line struct{ items byTime }

func (l *lines) add(i *item) {
	i.ready = true
	mine := l.of[i.requester]
	if mine == nil {
		mine = &line{}
		l.of[i.requester] = mine
		l.turns = append(l.turns, i.requester)
	}
	heap.Push(&mine.items, i)
}

// next takes the first item of the requester whose turn it is, or nil.
func (l *lines) next() *item {
	for len(l.turns) > 0 {
		who := l.turns[0]
		l.turns = l.turns[1:]
		mine := l.of[who]
		if len(mine.items) == 0 {
			delete(l.of, who)
			continue
		}
		i := heap.Pop(&mine.items).(*item)
		if len(mine.items) == 0 {
			delete(l.of, who)
		} else {
			l.turns = append(l.turns, who)
		}
		return i
	}
	l.turns = nil
	return nil
}

// nowhere is the index of an item that does not wait.
const nowhere = -1

type item struct {
	name, requester string
	class           Class
	at              time.Time
	tries, failures int
	// index is its place in the heap that it waits in: its line if it is ready, or the delayed.
	index int
	ready bool
}

// byTime is a heap; see container/heap.
type byTime []*item

func (h byTime) Len() int { return len(h) }

func (h byTime) Less(a, b int) bool {
	if h[a].at.Equal(h[b].at) {
		return h[a].name < h[b].name
	}
	return h[a].at.Before(h[b].at)
}

func (h byTime) Swap(a, b int) {
	h[a], h[b] = h[b], h[a]
	h[a].index, h[b].index = a, b
}

// Push implements heap.Interface.
func (h *byTime) Push(x any) {
	i := x.(*item)
	i.index = len(*h)
	*h = append(*h, i)
}

// Pop implements heap.Interface.
func (h *byTime) Pop() any {
	last := len(*h) - 1
	i := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	i.index = nowhere
	return i
}
