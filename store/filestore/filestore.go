// Package filestore keeps the record of a group in a file, for the processes of one
// machine. It needs nothing installed.
//
// The operating system locks the file, and releases the lock when a process dies. A new
// value is written beside the old one, synced, and takes its place by a rename. So a
// process killed in the middle of a Swap leaves the old record or the new one, and a Swap
// that has returned survives a power failure, if the disk keeps what it has acknowledged.
// While a process is stopped in the middle of a Swap (SIGSTOP, a debugger), the Swaps of
// the others wait. A Load needs no lock.
//
// # Proof of death
//
// The store is a [store.Prover]: while a [store.Life] lasts, the process has the kernel's lock
// on a file of its own, in the directory .lives beside the record. So other processes
// know at once when it has died. A child process can inherit the file, but not on Windows.
// Up to 64 threads of a process wait for the ends of lives; for more lives it looks from time to time.
//
// That proves something only on a file system that belongs to one machine. On Linux these are
// ext4, XFS, Btrfs, ZFS, F2FS, tmpfs, overlayfs and their like, on macOS, FreeBSD and
// DragonFly those mounted as local, on Windows those of fixed drives. On all others the
// store says [store.ErrNoProof]. Do not export such a directory to other machines: their
// processes would not be seen. On systems without such locks, such as Solaris, Open fails.
//
// # Where to keep the file
//
// Do not use filestore on a network file system: many of them lock within one machine
// only, or lose locks when the server restarts.
//
// The directory has more files: the path with .lock added, those of lives in .lives, and the path
// with .new added. While the group runs, nobody should remove them, or put copies in their place, as a
// restore or a move to another disk does: the copy of a life's file proves that the life is over. A killed
// process may leave the last two behind; the next ones remove them. All processes need permission to write
// in the directory, and no stranger should have it, so do not use a directory such as /tmp. Symbolic
// links in the place of these files are not followed.
//
// On Unix a Swap keeps the owner and the mode of the record. The owner of a new file is that of the
// directory if root has made it, so a run as root keeps nobody out. Its group can read and write the file
// if it may write in the directory.
package filestore

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/dmutex/dmutex/store"
)

// A record is a [store.Prover] in a file.
type record struct {
	dir, name           string
	loads, swaps, lives turn
}

// The ends of the names of the other files of a record.
const (
	lockEnd = ".lock"
	newEnd  = ".new"
)

// Open returns the store in the file at path, whose name does not end in .lock or .new. The directory must exist; the first Swap
// creates the file. A relative path is relative to the current directory.
func Open(path string) (store.Store, error) {
	if path == "" {
		return nil, errors.New("filestore: the path of the record is empty: give one, such as /var/lib/app/members")
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("filestore: %w", err)
	}
	for _, end := range []string{lockEnd, newEnd} {
		if strings.HasSuffix(strings.ToLower(path), end) { // some file systems ignore case
			return nil, fmt.Errorf("filestore: %s: the name of a record does not end in %s: so ends that of a file of another record; choose another name", path, end)
		}
	}
	s := &record{dir: filepath.Dir(path), name: filepath.Base(path), loads: make(turn, 1), swaps: make(turn, 1), lives: make(turn, 1)}
	// The record is read first, so that a path which cannot be a record gets no lock file.
	if _, _, err := s.Load(context.Background()); err != nil {
		return nil, err
	}
	err = s.inside("open", func(dir *os.Root) error {
		lock, err := open(dir, s.name+lockEnd, os.O_RDWR|os.O_CREATE)
		if err != nil {
			return err
		}
		return lock.Close()
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Load implements [store.Store].
func (s *record) Load(ctx context.Context) ([]byte, store.Revision, error) {
	var value []byte
	var rev store.Revision
	err := s.call(ctx, s.loads, "load", func(dir *os.Root) (err error) {
		if value, rev, err = s.read(dir); err != nil {
			return err
		}
		// If the process that wrote this was killed before it had synced the directory,
		// a power failure could still bring the previous record back.
		if lock, err := dir.Lstat(s.name + lockEnd); err == nil && lock.Size() == synced {
			return nil
		}
		return syncDir(dir)
	})
	if err != nil {
		return nil, "", err
	}
	return value, rev, nil
}

// Swap implements [store.Store].
func (s *record) Swap(ctx context.Context, value []byte, rev store.Revision) (store.Revision, error) {
	if len(value) > store.MaxValue {
		return "", s.fail("swap", fmt.Errorf("the value has %d bytes, and the file takes at most %d", len(value), store.MaxValue))
	}
	next := newName() // so that it is new even if the file has been deleted or restored
	content := append([]byte(next+"\n"), value...)
	err := s.change(ctx, "swap", rev, func(dir *os.Root, lock *os.File) error { return s.write(dir, lock, content) })
	if err != nil {
		return "", err
	}
	return store.Revision(next), nil
}

// Remove removes the record and its lock file, if its revision is still rev. A Swap that waits for the lock
// file meanwhile makes another one.
func (s *record) Remove(ctx context.Context, rev store.Revision) error {
	return s.change(ctx, "remove", rev, func(dir *os.Root, _ *os.File) error {
		return errors.Join(dir.Remove(s.name), dir.Remove(s.name+lockEnd))
	})
}

// change calls f under the lock, if the revision is still rev.
func (s *record) change(ctx context.Context, op string, rev store.Revision, f func(dir *os.Root, lock *os.File) error) error {
	return s.call(ctx, s.swaps, op, func(dir *os.Root) error {
		lock, err := s.lock(ctx, dir, s.name+lockEnd)
		if err != nil {
			return err
		}
		defer lock.Close()
		switch _, last, err := s.read(dir); {
		case err != nil:
			return err
		case last != rev:
			return store.ErrConflict
		}
		return f(dir, lock)
	})
}

// A turn is taken by one call at a time.
type turn chan struct{}

// call is inside, and returns when f does, or when the context ends. While the kernel keeps f
// from returning, for example because a stopped process has the lock, f keeps the turn: stuck
// calls do not accumulate.
func (s *record) call(ctx context.Context, t turn, op string, f func(dir *os.Root) error) error {
	done := make(chan error, 1)
	select {
	case t <- struct{}{}:
		go func() {
			err := s.inside(op, f)
			<-t
			done <- err
		}()
	case <-ctx.Done():
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return s.fail(op, fmt.Errorf("another process has the lock, or the file system does not answer: %w", ctx.Err()))
	}
}

// inside calls f with the directory. Nothing that f opens lies outside of it.
func (s *record) inside(op string, f func(dir *os.Root) error) error {
	dir, err := os.OpenRoot(s.dir)
	if err == nil {
		defer dir.Close()
		err = f(dir)
	} else if info, failed := os.Stat(s.dir); failed == nil && !info.IsDir() {
		err = fmt.Errorf("%w: %w", store.ErrUnusable, err)
	}
	return s.fail(op, err)
}

// fail names the file in an error, and marks an error that only an operator can mend.
func (s *record) fail(op string, err error) error {
	if err == nil {
		return nil
	}
	if slices.ContainsFunc(slices.Concat(lasting, full), func(target error) bool { return errors.Is(err, target) }) {
		err = fmt.Errorf("%w: %w", store.ErrUnusable, err)
	}
	return fmt.Errorf("filestore: %s %s: %w", op, filepath.Join(s.dir, s.name), err)
}

// lasting are the errors that recur until an operator mends their cause.
var lasting = []error{fs.ErrPermission, fs.ErrNotExist, errors.ErrUnsupported,
	syscall.ENOTDIR, syscall.ENOTEMPTY, syscall.EISDIR, syscall.ELOOP, syscall.EROFS, syscall.ENAMETOOLONG}

// open opens a file, but no symbolic link, directory or pipe.
func open(dir *os.Root, name string, flag int) (*os.File, error) {
	info, err := dir.Lstat(name)
	switch {
	case err == nil && !info.Mode().IsRegular():
		return nil, fmt.Errorf("%w: %s is not a regular file: use another path", store.ErrUnusable, name)
	case err != nil && flag&os.O_CREATE != 0:
		if f, err := create(dir, name, nil); !errors.Is(err, fs.ErrExist) {
			return f, err
		}
	}
	return dir.OpenFile(name, flag, 0o600)
}

// create creates a file like another one, or, if that is nil, one for those who may write in the directory.
func create(dir *os.Root, name string, like fs.FileInfo) (*os.File, error) {
	f, err := dir.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	if like != nil {
		give(f, like, like.Mode().Perm())
	} else if like, err := dir.Stat("."); err == nil {
		mode := fs.FileMode(0o600)
		if like.Mode().Perm()&0o020 != 0 {
			mode = 0o660
		}
		give(f, like, mode)
	}
	return f, nil
}

// lock waits for the lock on a file, which it creates if it is missing. Closing the file releases
// it. If the file was removed meanwhile, its lock excludes nobody, so lock tries again.
func (s *record) lock(ctx context.Context, dir *os.Root, name string) (*os.File, error) {
	for ctx.Err() == nil {
		f, err := open(dir, name, os.O_RDWR|os.O_CREATE)
		if err != nil {
			return nil, err
		}
		if err = lock(f, alone); err == nil && ctx.Err() == nil && has(dir, name, f) {
			return f, nil
		}
		f.Close()
		if err != nil {
			return nil, err
		}
	}
	return nil, ctx.Err()
}

// has reports whether the directory has the file under that name.
func has(dir *os.Root, name string, f *os.File) bool {
	opened, _ := f.Stat()
	named, _ := dir.Lstat(name)
	return os.SameFile(opened, named) // false if either is missing
}

// The file is the revision, a newline, and the value.
func (s *record) read(dir *os.Root) ([]byte, store.Revision, error) {
	f, err := open(dir, s.name, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, "", nil
	}
	if err != nil {
		return nil, "", err
	}
	defer f.Close()
	content, err := readAll(io.LimitReader(f, int64(nameSize+1+store.MaxValue+1)))
	if err != nil {
		return nil, "", err
	}
	rev, value, ok := bytes.Cut(content, []byte("\n"))
	if !ok || !isName(string(rev)) || len(value) > store.MaxValue {
		return nil, "", fmt.Errorf("%w: %s is not a record: remove it, or use another path", store.ErrUnusable, s.name)
	}
	return value, store.Revision(rev), nil
}

// write replaces the record. If the lock file was removed meanwhile, another process may
// have the lock, and may have swapped, so the record stays what it is.
func (s *record) write(dir *os.Root, lock *os.File, content []byte) error {
	temporary := s.name + newEnd
	if err := dir.Remove(temporary); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	like, err := dir.Lstat(s.name)
	if err != nil {
		like = nil // it is the first record
	}
	f, err := create(dir, temporary, like)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil {
		err = syncFile(f)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		_ = dir.Remove(temporary) // the disk may be full
		return err
	}
	if !has(dir, s.name+lockEnd, lock) {
		return fmt.Errorf("%s.lock was removed during a swap: leave it there while the group runs", s.name)
	}
	if err := lock.Truncate(unsynced); err != nil {
		return err
	}
	if err := rename(dir, temporary, s.name); err != nil {
		return err
	}
	if err := syncDir(dir); err != nil {
		return err
	}
	_ = lock.Truncate(synced) // otherwise each Load syncs
	return nil
}

// The size of the lock file tells whether a Swap was cut short after its rename, perhaps.
const (
	synced   = 0
	unsynced = 1
)

// The names of lives, and the revisions, are random.
const nameSize = 26

func newName() string { return rand.Text()[:nameSize] }

var isName = regexp.MustCompile(fmt.Sprintf("^[A-Z2-7]{%d}$", nameSize)).MatchString

// The tests make these fail.
var (
	readAll  = io.ReadAll
	syncFile = (*os.File).Sync
	rename   = (*os.Root).Rename
	syncDir  = syncDirectory
	isLocal  = isLocalDirectory
	list     = (*os.File).Readdirnames
)
