// Package filestore keeps the record of a group in a file, for the processes of one
// machine. It needs nothing installed.
//
// The operating system locks the file, and releases the lock when a process dies. A new
// value is written beside the old one, synced, and takes its place by a rename. So a
// process killed in the middle of a Swap leaves the old record or the new one, and a Swap
// that has returned survives a power failure, if the disk keeps what it has acknowledged.
//
// A process that is stopped in the middle of a Swap (SIGSTOP, a debugger) keeps the lock,
// and the others wait for it until their contexts end.
//
// Do not use filestore on a network file system: many of them lock within one machine
// only, or lose locks when the server restarts. For processes on several machines, use
// another store.
//
// The directory has two more files: the path with .lock added, which must not be removed
// while the group runs, and the path with .new added, which a killed process may leave
// behind. All processes need permission to write in the directory.
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
	"time"

	"github.com/dmutex/dmutex/store"
)

// Store is a [store.Store] in a file.
type Store struct{ path string }

// Open returns the store in the file at path. The directory must exist; the first Swap
// creates the file. A relative path is relative to the current directory.
func Open(path string) (*Store, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("filestore: %w", err)
	}
	s := &Store{path}
	lock, err := tryLock(s.path + ".lock") // so that a wrong path is an error here
	if err != nil {
		return nil, fmt.Errorf("filestore: %w", err)
	}
	if lock != nil {
		lock.Close()
	}
	return s, nil
}

// Load implements [store.Store].
func (s *Store) Load(ctx context.Context) (value []byte, rev store.Revision, err error) {
	err = s.locked(ctx, func() error {
		value, rev, err = s.read()
		if err != nil {
			return err
		}
		// If the process that wrote this was killed before it had synced the directory,
		// a power failure could still bring the previous record back.
		return syncDir(filepath.Dir(s.path))
	})
	if err != nil {
		return nil, "", fmt.Errorf("filestore: load: %w", err)
	}
	return value, rev, nil
}

// Swap implements [store.Store].
func (s *Store) Swap(ctx context.Context, value []byte, rev store.Revision) (store.Revision, error) {
	// Random, so that it is new even if the file has been deleted or restored.
	next := store.Revision(rand.Text())
	err := s.locked(ctx, func() error {
		switch _, last, err := s.read(); {
		case err != nil:
			return err
		case last != rev:
			return store.ErrConflict
		}
		return s.write(value, next)
	})
	if err != nil {
		return "", fmt.Errorf("filestore: swap: %w", err)
	}
	return next, nil
}

// locked calls f while this call has the lock. It polls, because a blocking wait for the
// lock would not end with the context.
func (s *Store) locked(ctx context.Context, f func() error) error {
	const pause = 2 * time.Millisecond
	if err := ctx.Err(); err != nil {
		return err
	}
	for {
		lock, err := tryLock(s.path + ".lock")
		if err != nil {
			return err
		}
		if lock != nil {
			defer lock.Close()
			return f()
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("another process holds the lock on %s.lock: %w", s.path, err)
		}
	}
}

// The file is the revision, a newline, and the value.
func (s *Store) read() ([]byte, store.Revision, error) {
	content, err := os.ReadFile(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, "", nil
	}
	if err != nil {
		return nil, "", err
	}
	rev, value, ok := bytes.Cut(content, []byte("\n"))
	if !ok || len(rev) != len(rand.Text()) {
		return nil, "", fmt.Errorf("%s is not a record: remove it, or use another path", s.path)
	}
	return value, store.Revision(rev), nil
}

func (s *Store) write(value []byte, rev store.Revision) error {
	temporary := s.path + ".new"
	f, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = io.WriteString(f, string(rev)+"\n"+string(value))
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(temporary, s.path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(s.path))
}
