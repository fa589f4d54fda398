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
	// What is misread here is found by comparing the texts.
	var fields [5]string
	rest := text
	for i := range fields {
		end := slices.Index(rest, '\n')
		if end < 0 || end > 6*MaxName {
			return r, badRecord("it is not one of a lock: use another record, or delete it")
		}
		line := rest[:end]
		rest = rest[end+1:]
		if i > 0 {
			line = line[min(len(line), slices.Index(line, ' ')+1):]
		}
		fields[i] = string(line)
	}
	r.Lock, _ = strconv.Unquote(fields[1])
	r.Fence, _ = strconv.ParseUint(fields[2], 10, 64)
	r.Lease, _ = strconv.ParseInt(fields[3], 10, 64)
	r.Holder = fields[4]
	switch {
	case string(r.AppendText(nil)) != string(text) || r.Fence == 0 || r.Fence > maxFence ||
		r.Lease < MinLease || r.Lease > MaxLease || r.Holder != "" && !ValidLife(r.Holder):
		return r, badRecord("it is not one of a lock: use another record, or delete it")
	case r.Lock != lock:
		return r, badRecord("it is of the lock " + strconv.Quote(r.Lock) + ", not of " + strconv.Quote(lock) + ": give each lock a record of its own")
	}
	return r, nil
}

// ValidLife reports whether a life may have this name.
func ValidLife(name string) bool {
	for _, c := range []byte(name) {
		if (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') {
			return false
		}
	}
	return name != "" && len(name) <= maxLife
}

func badRecord(why string) error { return &recordError{why} }

type recordError struct{ why string }

func (e *recordError) Error() string { return ErrRecord.Error() + ": " + e.why }
func (e *recordError) Unwrap() error { return ErrRecord }
