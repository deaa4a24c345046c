// SPDX-License-Identifier: Apache-2.0

package report

// Fanout publishes each Status on this host and as the node's state object.
type Fanout struct {
	*Reporter
	Object *Object
}

// Publish shows s in both places. An error is the Reporter's: the state object is written beside the caller, or later.
func (f Fanout) Publish(s Status) error {
	f.Object.Publish(s)
	return f.Reporter.Publish(s)
}
