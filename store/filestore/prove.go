package filestore

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	gosync "sync"
	"sync/atomic"

	"github.com/dmutex/dmutex/store"
)

// A life is a [store.Life]: the kernel's lock on a file of its own, beside the record.
type life struct {
	s    *record
	name string
	file *os.File
}

// before returns what the names of the files of lives begin with.
func (s *record) before() string { return s.name + ".life." }

// Live implements [store.Prover]. It also removes the files of lives that are over, unless
// the record names them.
func (s *record) Live(ctx context.Context) (store.Life, error) {
	// If the context ends while the life begins, the second to notice ends the life.
	var begun atomic.Pointer[life]
	end := func() {
		if l := begun.Swap(nil); l != nil {
			_ = l.Close()
		}
	}
	err := s.lives.call(ctx, func() error {
		return s.proving(func(dir *os.Root) error {
			if err := s.sweep(dir); err != nil {
				return err
			}
			l, err := s.begin(dir)
			if err != nil {
				return err
			}
			if begun.Store(l); ctx.Err() != nil {
				end()
			}
			return ctx.Err()
		})
	})
	if err != nil {
		end()
		return nil, s.fail("begin a life beside", err)
	}
	return begun.Load(), nil
}

func (s *record) begin(dir *os.Root) (*life, error) {
	for {
		name := rand.Text()
		f, err := dir.OpenFile(s.before()+name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return nil, err
		}
		if err := lock(f, alone); err != nil {
			f.Close()
			return nil, err
		}
		if has(dir, s.before()+name, f) { // else another process has swept it away
			return &life{s, name, f}, nil
		}
		f.Close()
	}
}

// sweep removes the files of lives that are over, unless the record names them.
func (s *record) sweep(dir *os.Root) error {
	names, err := s.names(dir)
	if err != nil || len(names) == 0 {
		return err
	}
	value, _, err := s.read(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if bytes.Contains(value, []byte(name)) {
			continue
		}
		s.remove(dir, name)
	}
	return nil
}

// remove removes the file of a life that is over. The next Live tries again.
func (s *record) remove(dir *os.Root, name string) {
	f, err := open(dir, s.before()+name, os.O_RDWR)
	if err != nil {
		return // another process was faster, or it is not a file of ours
	}
	defer f.Close()
	if lock(f, alone|atOnce) == nil {
		_ = dir.Remove(s.before() + name)
	}
}

// Over implements [store.Prover].
func (s *record) Over(ctx context.Context, name string) error {
	if !isName(name) {
		return s.fail("look for a life beside", fmt.Errorf("%w: %q is not the name of a life", store.ErrNoProof, name))
	}
	w := s.await(name)
	select {
	case <-w.done:
		if w.err != nil {
			return s.fail("look for a life beside", w.err)
		}
		return nil
	case <-ctx.Done():
		return s.fail("look for a life beside", ctx.Err())
	}
}

// A wait is for the end of a life. The kernel wakes a thread when it is over. There is one
// wait for each life, however many calls of Over have begun and ended meanwhile, and however
// often this process has opened the record.
type wait struct {
	done chan struct{}
	err  error
}

var waits = struct {
	gosync.Mutex
	of map[string]*wait // by the path of the life's file
}{of: make(map[string]*wait)}

func (s *record) await(name string) *wait {
	waits.Lock()
	defer waits.Unlock()
	path := filepath.Join(s.dir, s.before()+name)
	if w := waits.of[path]; w != nil {
		return w
	}
	w := &wait{done: make(chan struct{})}
	waits.of[path] = w
	go func() {
		w.err = s.proving(func(dir *os.Root) error {
			f, err := open(dir, s.before()+name, os.O_RDONLY)
			if err != nil {
				return fmt.Errorf("%w: %w", store.ErrNoProof, err)
			}
			defer f.Close()
			return lock(f, shared)
		})
		waits.Lock()
		delete(waits.of, path)
		waits.Unlock()
		close(w.done)
	}()
	return w
}

// Living implements [store.Prover].
func (s *record) Living(ctx context.Context) ([]string, error) {
	var living []string
	err := s.lives.call(ctx, func() error {
		return s.proving(func(dir *os.Root) error {
			names, err := s.names(dir)
			if err != nil {
				return err
			}
			for _, name := range names {
				f, err := open(dir, s.before()+name, os.O_RDONLY)
				if err == nil {
					err = lock(f, shared|atOnce)
					f.Close()
				}
				switch {
				case err == nil, errors.Is(err, fs.ErrNotExist): // it is over
				case errors.Is(err, taken):
					living = append(living, name)
				default:
					return fmt.Errorf("%w: %w", store.ErrNoProof, err)
				}
			}
			return nil
		})
	})
	if err != nil {
		return nil, s.fail("look for lives beside", err)
	}
	return living, nil
}

// names returns the names that the files of lives may have. Other processes may spell the path in
// another way, on a file system that ignores case, and there may be lives of other records: only
// opening before with the name tells.
func (s *record) names(dir *os.Root) (names []string, err error) {
	d, err := dir.Open(".")
	if err != nil {
		return nil, err
	}
	defer d.Close()
	files, err := list(d, -1)
	for _, file := range files {
		if name := file[strings.LastIndex(file, ".")+1:]; isName(name) {
			names = append(names, name)
		}
	}
	return names, err
}

// isName reports whether begin may have given this name.
func isName(name string) bool {
	return len(name) == len(rand.Text()) &&
		!strings.ContainsFunc(name, func(r rune) bool { return (r < 'A' || r > 'Z') && (r < '2' || r > '7') })
}

// proving calls f with the directory, if a lock in it proves anything.
func (s *record) proving(f func(dir *os.Root) error) error {
	return s.inside(func(dir *os.Root) error {
		switch local, err := isLocal(dir); {
		case err != nil:
			return fmt.Errorf("%w: %w", store.ErrNoProof, err)
		case !local:
			return fmt.Errorf("%w: the file system is not known to be local to this machine", store.ErrNoProof)
		}
		return f(dir)
	})
}

// Name implements [store.Life].
func (l *life) Name() string { return l.name }

// File implements [store.Life].
func (l *life) File() *os.File {
	if !inheritable {
		return nil
	}
	return l.file
}

// Close implements [store.Life]. The file remains if the record names it, so that others see
// that this life is over, and while a child has inherited it, as this life is not over then.
func (l *life) Close() error {
	if err := l.file.Close(); err != nil {
		return fmt.Errorf("filestore: end a life beside %s: %w", filepath.Join(l.s.dir, l.s.name), err)
	}
	_ = l.s.inside(func(dir *os.Root) error { // if it fails, the next Live removes the file
		if value, _, err := l.s.read(dir); err == nil && !bytes.Contains(value, []byte(l.name)) {
			l.s.remove(dir, l.name)
		}
		return nil
	})
	return nil
}
