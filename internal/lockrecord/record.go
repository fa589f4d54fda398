package lockrecord

import (
	"errors"
	"slices"
	"strconv"
)

// ErrRecord is wrapped by the errors of a record that is not one of this lock.
var ErrRecord = errors.New("bad record")

// Bounds of what a record says.
const (
	MaxName = 1024 // the length of the longest name of a lock

	// Leases, in nanoseconds.
	MinLease = int64(100_000_000)
	MaxLease = int64(3600_000_000_000)

	maxLife  = 64
	maxFence = 1<<63 - 1 // fits the signed numbers of databases

	header = "dmutex lock 1\n"
)

// A Record is what the store holds about a lock.
type Record struct {
	Lock   string
	Fence  uint64 // of the last grant
	Lease  int64  // of the last holder, in nanoseconds
	Holder string // its life; empty if the lock is free
}

// AppendText appends the record as lines of text.
func (r *Record) AppendText(b []byte) []byte {
	b = append(b, header+"lock "...)
	b = strconv.AppendQuote(b, r.Lock)
	b = strconv.AppendUint(append(b, "\nfence "...), r.Fence, 10)
	b = strconv.AppendInt(append(b, "\nlease "...), r.Lease, 10)
	b = append(append(b, "\nholder "...), r.Holder...)
	return append(b, '\n')
}

// parse reads what AppendText has written of a lock, and nothing else.
func parse(text []byte, lock string) (r Record, err error) {
	rest := text
	next := func() string { // what follows the first word of the next line
		end := max(slices.Index(rest, '\n'), 0)
		line := rest[:end]
		rest = rest[min(end+1, len(rest)):]
		return string(line[slices.Index(line, ' ')+1:])
	}
	next() // the header. What is misread is found by comparing the texts
	r.Lock, _ = strconv.Unquote(next())
	r.Fence, _ = strconv.ParseUint(next(), 10, 64)
	r.Lease, _ = strconv.ParseInt(next(), 10, 64)
	r.Holder = next()
	switch {
	case string(r.AppendText(nil)) != string(text) || r.Fence == 0 || r.Fence > maxFence ||
		r.Lease < MinLease || r.Lease > MaxLease || len(r.Holder) > maxLife || slices.ContainsFunc([]byte(r.Holder), notInLife):
		return r, badRecord("it is not one of a lock: use another record, or delete it")
	case r.Lock != lock:
		return r, badRecord("it is of the lock " + strconv.Quote(r.Lock) + ", not of " + strconv.Quote(lock) + ": give each lock a record of its own")
	}
	return r, nil
}

// notInLife reports whether no name of a life has this character.
func notInLife(c byte) bool {
	return (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z')
}

// A badRecord is an [ErrRecord] that says why.
type badRecord string

func (why badRecord) Error() string { return ErrRecord.Error() + ": " + string(why) }
func (why badRecord) Unwrap() error { return ErrRecord }
