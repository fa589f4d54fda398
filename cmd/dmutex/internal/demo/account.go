package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/dmutex/dmutex"
)

const deposit = 100 // cents

// An account is a file that processes share: a passbook with a line for each
// deposit. The file itself has no lock.
//
// A teller makes a deposit by writing its line. One system call writes a line within
// one page of memory, so a killed teller has written all of it or nothing, and the
// passbook shows every deposit. If two tellers read the same balance, there are two
// lines, and the last balance is less than the deposits add up to.
type account struct {
	file   *os.File
	marker string // a file that exists while a teller is in the critical section
	badge  string // the teller's own file; see occupy
}

// entry is a line: who made the deposit; 1 if another teller was inside, too; the
// highest fence of all deposits so far; and the balance after it. Its width is fixed
// and divides the size of a page.
const entry = "by %02d met %d fence %020d balance %016d\n"

const entryWidth = 64

// openAccount opens the account for a teller. At first it is empty.
func openAccount(dir string, teller dmutex.NodeID) (*account, error) {
	badge := badgePath(dir, teller)
	if err := os.WriteFile(badge, nil, 0o600); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(accountPath(dir), os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	return &account{f, markerPath(dir), badge}, nil
}

func accountPath(dir string) string { return filepath.Join(dir, "account") }
func markerPath(dir string) string  { return filepath.Join(dir, "a-teller-is-inside") }

func badgePath(dir string, teller dmutex.NodeID) string {
	return filepath.Join(dir, fmt.Sprint("teller-", teller))
}

// A line is one line of the passbook.
type line struct {
	by      dmutex.NodeID
	met     bool // another teller was inside
	fence   uint64
	balance int64
}

func parseLine(text string) (l line, err error) {
	var met int
	if _, err := fmt.Sscanf(text, entry, &l.by, &met, &l.fence, &l.balance); err != nil || len(text) != entryWidth {
		return line{}, fmt.Errorf("account file: %q is not a line of it", text)
	}
	l.met = met != 0
	return l, nil
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// read returns the last line, or the zero line of an empty account.
func (a *account) read() (line, error) {
	end, err := a.file.Seek(0, io.SeekEnd)
	if err != nil || end == 0 {
		return line{}, err
	}
	var b [entryWidth]byte
	n, err := a.file.ReadAt(b[:], max(0, end-entryWidth))
	if err != nil && err != io.EOF {
		return line{}, err
	}
	return parseLine(string(b[:n]))
}

// pay is the critical section: it reads the balance, thinks, and writes the
// balance back with a deposit added. It also finds out, without help from the
// lock, whether another teller is inside.
func (a *account) pay(ctx context.Context, teller dmutex.NodeID, fence uint64, think time.Duration) (err error) {
	leave, overlap, err := occupy(a.marker, a.badge)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, leave()) }()
	last, err := a.read()
	if err != nil {
		return err
	}
	if err := sleep(ctx, think); err != nil {
		return err
	}
	return a.write(line{teller, overlap, max(fence, last.fence), last.balance + deposit})
}

func (a *account) write(l line) error {
	met := 0
	if l.met {
		met = 1
	}
	_, err := a.file.Write(fmt.Appendf(nil, entry, l.by, met, l.fence, l.balance))
	return err
}

func readPassbook(dir string) (e evidence, err error) {
	text, err := os.ReadFile(accountPath(dir))
	if err != nil {
		return e, err
	}
	var last line
	for text := range strings.Lines(string(text)) {
		l, err := parseLine(text)
		if err != nil {
			return e, err
		}
		e.Entries++
		if l.met {
			e.Overlaps++
		}
		if l.fence <= last.fence {
			e.FenceErrors++
		}
		last = l
	}
	e.Expected, e.Actual = int64(e.Entries)*deposit, last.balance
	return e, nil
}

// occupy links marker to the process's own file, the badge, while the process is
// inside, and returns the function that removes the link. If another process is already
// inside, the two overlap, and leave does nothing. The link appears in one step, so it
// also shows which process was killed inside.
func occupy(marker, badge string) (leave func() error, overlap bool, err error) {
	switch err := os.Link(badge, marker); {
	case err == nil:
		return func() error { return os.Remove(marker) }, false, nil
	case errors.Is(err, fs.ErrExist):
		return func() error { return nil }, true, nil
	default:
		return nil, false, err
	}
}

func isInside(marker, badge string) bool {
	at, _ := os.Stat(marker)
	its, _ := os.Stat(badge)
	return os.SameFile(at, its) // no file is the same as one that is not there
}

// vacate removes the marker of a process that was killed, and reports whether it was
// inside.
func vacate(marker, badge string) (inside bool, err error) {
	if !isInside(marker, badge) {
		return false, nil
	}
	return true, os.Remove(marker)
}
