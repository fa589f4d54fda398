package membership

// An Output is what an input of a machine has caused. Its Events are in order, and the driver does what
// they say. The Messages may be kept. They leave after the driver knows the peers that an event of the
// lease mode names, and before it does what an [Acts] says, or gives another input.
type Output struct {
	Messages []Message
	Events   []Event
}

// And returns the output of two inputs, one after the other.
func (o Output) And(next Output) Output {
	return Output{append(o.Messages, next.Messages...), append(o.Events, next.Events...)}
}

// An Event is something that an input of a machine has caused: one of those below, or of the package of the
// machine.
type Event any

// Installed tells that a newer View is installed. The driver freezes all that is older, and then calls
// Report. The report is Whole if a former member may hold locks: then it tells of all locks, and not only of
// those that are held.
type Installed struct {
	View  View
	Whole bool // in the lease mode
}

// Acts tells that the View that was installed last acts: its locks begin, with the Holdings that its
// members have reported, see package carryover, and what they know of the Past.
type Acts struct {
	View     View
	Holdings []Holding
	Past     *Past // in the lease mode
}
