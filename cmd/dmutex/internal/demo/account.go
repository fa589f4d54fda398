package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// deposit is what a teller pays in at a time, in cents.
const deposit = 100

// An account is a file that processes share, with a balance in cents and the
// highest fence of all that wrote to it. The file itself has no lock.
type account struct {
	file   *os.File
	marker string // a file that exists while a teller is in the critical section
}

// entry is the content of the file. Its width is fixed, so that a writer
// overwrites it whole.
const entry = "balance %020d fence %020d\n"

// createAccount makes an empty account in a directory that has none.
func createAccount(dir string) error {
	return os.WriteFile(accountPath(dir), fmt.Appendf(nil, entry, 0, 0), 0o600)
}

func openAccount(dir string) (*account, error) {
	f, err := os.OpenFile(accountPath(dir), os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	return &account{f, filepath.Join(dir, "a-teller-is-inside")}, nil
}

func accountPath(dir string) string { return filepath.Join(dir, "account") }

func (a *account) read() (balance int64, fence uint64, err error) {
	var b [len("balance 12345678901234567890 fence 12345678901234567890\n")]byte
	if _, err := a.file.ReadAt(b[:], 0); err != nil {
		return 0, 0, err
	}
	if _, err := fmt.Sscanf(string(b[:]), entry, &balance, &fence); err != nil {
		return 0, 0, fmt.Errorf("account file: %q: %w", b, err)
	}
	return balance, fence, nil
}

func (a *account) write(balance int64, fence uint64) error {
	_, err := a.file.WriteAt(fmt.Appendf(nil, entry, balance, fence), 0)
	return err
}

// pay is the critical section: it reads the balance, thinks, and writes the
// balance back with a deposit added. It also finds out, without help from the
// lock, whether another teller is inside (overlap), and whether the fence is
// above those of all earlier writers (stale if not).
func (a *account) pay(ctx context.Context, fence uint64, think time.Duration) (overlap, stale bool, err error) {
	leave, overlap, err := occupy(a.marker)
	if err != nil {
		return false, false, err
	}
	defer func() { err = errors.Join(err, leave()) }()
	balance, last, err := a.read()
	if err != nil {
		return overlap, false, err
	}
	select {
	case <-time.After(think):
	case <-ctx.Done():
		return overlap, false, context.Cause(ctx)
	}
	return overlap, fence <= last, a.write(balance+deposit, max(fence, last))
}
