package byhand

import (
	"slices"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/maekawa"
)

// undecided is a machine of Maekawa whose arbiter tells nobody that a request has failed, and asks for no vote
// back: the algorithm of section 3 of the paper, before its handling of deadlocks.
type undecided struct{ dmutex.Machine }

func plain(s dmutex.Start) (dmutex.Machine, error) {
	m, err := maekawa.New(s)
	return undecided{m}, err
}

func silent(out []dmutex.Message, err error) ([]dmutex.Message, error) {
	return slices.DeleteFunc(out, func(m dmutex.Message) bool { return m.Kind == dmutex.Failed || m.Kind == dmutex.Inquire }), err
}

func (u undecided) Request() ([]dmutex.Message, error) { return silent(u.Machine.Request()) }

func (u undecided) Cancel() ([]dmutex.Message, error) { return silent(u.Machine.Cancel()) }

func (u undecided) Release() ([]dmutex.Message, error) { return silent(u.Machine.Release()) }

func (u undecided) Handle(m dmutex.Message) ([]dmutex.Message, error) {
	return silent(u.Machine.Handle(m))
}

// Lends implements [dmutex.Lender].
func (u undecided) Lends() dmutex.NodeID { return u.Machine.(dmutex.Lender).Lends() }

// AppendText implements [dmutex.Machine].
func (u undecided) AppendText(b []byte) ([]byte, error) {
	return u.Machine.AppendText(append(b, "plain "...))
}

// Clone implements [dmutex.Machine].
func (u undecided) Clone() dmutex.Machine { return undecided{u.Machine.Clone()} }
