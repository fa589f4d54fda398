package leases

import "github.com/dmutex/dmutex/internal/due"

// A Term is a lease as the side that relies on it knows it. It runs because the other side has
// confirmed it, and counts from the sending of the question, which the other side cannot have taken
// before: that one waits for Drain from then on before it gives to another what the lease stands
// for. Only an answer extends a term, because a question without one may never have arrived. What
// has ended stays ended: another may have had it since. The rest is a new Term.
//
// Times are nanoseconds of a clock that counts sleep. The zero Term has not begun.
type Term struct {
	Length     int64 // L, of which Margin and Renew are shares
	expiry     int64
	runs, over bool
}

// From returns the term of a lease that was confirmed to run for a length from then on.
func From(sent, length int64) Term { return Term{Length: length, expiry: sent + length, runs: true} }

// Confirm tells that a question sent then was answered: the lease runs for so long. It reports
// whether the term runs now. An answer that comes too late begins nothing.
func (t *Term) Confirm(now, sent, length int64) (runs bool) {
	if t.Over(now) {
		return false
	}
	expiry := sent + length
	if t.runs {
		expiry = max(expiry, t.expiry)
	}
	if now < expiry-t.Length/Margin {
		t.expiry, t.runs = expiry, true
	}
	return t.runs
}

// Over reports whether the term has run and ended. It comes before each input of a machine that
// has a term.
func (t *Term) Over(now int64) bool {
	if t.runs && now >= t.Until() {
		t.runs, t.over = false, true
	}
	return t.over
}

// Runs reports whether the term runs, as of the last Confirm or Over.
func (t *Term) Runs() bool { return t.runs }

// Expiry returns when the lease expires.
func (t *Term) Expiry() int64 { return t.expiry }

// Until returns when the term ends, a margin before the lease: time for code that learns of it
// to stop.
func (t *Term) Until() int64 { return t.expiry - t.Length/Margin }

// Renew returns when to send the next question, after this share of the lease.
func (t *Term) Renew(share int64) int64 { return t.expiry - t.Length + t.Length/share }

// Late returns from when on the next answer is late.
func (t *Term) Late() int64 { return t.expiry - t.Length + t.Length/Renew*2 }

// A State is how a term stands.
type State uint8

// The states.
const (
	Ended State = iota // or not begun
	Valid
	Late // its renewal is late
)

// State returns how the term stands, which does not end it.
func (t *Term) State(now int64) State {
	switch {
	case !t.runs || now >= t.Until():
		return Ended
	case now >= t.Late():
		return Late
	}
	return Valid
}

// Next returns when the term will stand otherwise without an answer, [due.Never] if it will not.
func (t *Term) Next(now int64) int64 {
	switch t.State(now) {
	case Valid:
		return t.Late()
	case Late:
		return t.Until()
	}
	return due.Never
}

// String returns the state as a word.
func (s State) String() string { return [...]string{"ended", "valid", "late"}[s] }

// MarshalText writes the state as a word.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
