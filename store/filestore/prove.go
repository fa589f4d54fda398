package filestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/dmutex/dmutex/store"
)

// A life is a [store.Life]: the kernel's lock on a file of its own, beside the record.
type life struct {
	s    *record
	name string
	file *os.File
}

// lives is the directory that has the files of the lives of all records beside it.
const lives = ".lives"

// lifeFile returns the name of the file of a life.
func (s *record) lifeFile(name string) string { return filepath.Join(lives, s.name+"."+name) }

// Live implements [store.Prover]. It also removes the files of lives that are over, unless
// the record names them.
func (s *record) Live(ctx context.Context) (store.Life, error) {
	const op = "begin a life beside"
	l := &life{s: s, name: newName()}
	var keep func() bool // false if the context has ended the life
	err := s.call(ctx, s.lives, op, func(dir *os.Root) error {
		names, err := s.names(dir)
		if err == nil {
			s.sweep(dir, names)
			err = makeLives(dir)
		}
		if err != nil {
			return err
		}
		if l.file, err = s.lock(ctx, dir, s.lifeFile(l.name)); err == nil {
			keep = context.AfterFunc(ctx, func() { _ = l.Close() })
		}
		return err
	})
	if err == nil && !keep() {
		err = s.fail(op, ctx.Err())
	}
	if err != nil {
		return nil, err
	}
	return l, nil
}

// makeLives makes the directory of lives, for the processes that may write in the directory beside it.
func makeLives(dir *os.Root) error {
	err := dir.Mkdir(lives, 0o700)
	if errors.Is(err, fs.ErrExist) {
		if info, err := dir.Lstat(lives); err == nil && !info.IsDir() {
			return fmt.Errorf("%w: %s is not a directory: remove it", store.ErrUnusable, lives)
		}
		return nil
	}
	if err != nil {
		return err
	}
	d, err := dir.Open(lives)
	if err != nil {
		return err
	}
	defer d.Close()
	like, err := dir.Stat(".")
	if err == nil {
		give(d, like, like.Mode().Perm())
	}
	return err
}

// sweep removes the files of those lives that are over and that the record does not name. It reads the
// record last, since a life comes into it before it is over. What has no such file, or fails, another
// process or the next Live removes.
func (s *record) sweep(dir *os.Root, names []string) {
	for _, name := range names {
		f, err := open(dir, s.lifeFile(name), os.O_RDWR)
		if err != nil {
			continue
		}
		if lock(f, alone|atOnce) == nil && has(dir, s.lifeFile(name), f) {
			if value, _, err := s.read(dir); err == nil && !bytes.Contains(value, []byte(name)) {
				_ = dir.Remove(s.lifeFile(name))
			}
		}
		f.Close()
	}
}

// A wait is for the end of a life.
type wait struct {
	done chan struct{}
	err  error
}

// waits has one wait for each life, by the path of its file, for all calls of Over in this process.
var waits sync.Map

// threads bounds the threads that block until a life is over: Go ends a program that has 10,000.
var threads = make(chan struct{}, 64)

// The waits beyond that look at a life from time to time.
const (
	firstLook = 10 * time.Millisecond
	lastLook  = 300 * time.Millisecond
)

// Over implements [store.Prover].
func (s *record) Over(ctx context.Context, name string) error {
	const op = "look for a life beside"
	if !isName(name) {
		return s.fail(op, fmt.Errorf("%w: %q is not the name of a life", store.ErrNoProof, name))
	}
	path := filepath.Join(s.dir, s.lifeFile(name))
	for pause := firstLook; ; pause = min(2*pause, lastLook) {
		first, waiting := waits.LoadOrStore(path, &wait{done: make(chan struct{})})
		w := first.(*wait)
		if !waiting {
			go func() {
				w.err = s.inside(op, func(dir *os.Root) error { return s.await(dir, name) })
				waits.Delete(path)
				close(w.done)
			}()
		}
		select {
		case <-w.done:
		case <-ctx.Done():
			return s.fail(op, ctx.Err())
		}
		if !errors.Is(w.err, taken) {
			return w.err
		}
		select {
		case <-time.After(pause/2 + rand.N(pause/2)):
		case <-ctx.Done():
			return s.fail(op, ctx.Err())
		}
	}
}

// await waits for the end of a life, but returns taken before it if too many threads wait already.
func (s *record) await(dir *os.Root, name string) error {
	if err := proves(dir); err != nil {
		return err
	}
	select {
	case threads <- struct{}{}:
		defer func() { <-threads }()
		return s.try(dir, name, shared)
	default:
		return s.try(dir, name, shared|atOnce)
	}
}

// try takes the lock of a life for a moment, which proves that it is over where a lock proves anything.
// An error that is fs.ErrNotExist says that the life has no file any more, and nothing else. Another error
// than that it has no file, or none that can be locked, may pass.
func (s *record) try(dir *os.Root, name string, how int) error {
	f, err := open(dir, s.lifeFile(name), os.O_RDONLY)
	if err == nil {
		err = lock(f, how)
		f.Close()
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, store.ErrUnusable) {
		return fmt.Errorf("%w: %w", store.ErrNoProof, err)
	}
	return err
}

// Living implements [store.Prover].
func (s *record) Living(ctx context.Context) ([]string, error) {
	var living []string
	err := s.call(ctx, s.lives, "look for lives beside", func(dir *os.Root) error {
		names, err := s.names(dir)
		if err != nil {
			return err
		}
		for _, name := range names {
			switch err := s.try(dir, name, shared|atOnce); {
			case err == nil, errors.Is(err, fs.ErrNotExist): // it is over
			case errors.Is(err, taken):
				living = append(living, name)
			default:
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return living, nil
}

// names returns the names that lives may have, where that proves anything. On a file system that
// ignores case others may spell the path in another way, and there may be lives of other records:
// only opening lifeFile tells.
func (s *record) names(dir *os.Root) (names []string, err error) {
	if err := proves(dir); err != nil {
		return nil, err
	}
	d, err := dir.Open(lives)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
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

// proves returns ErrNoProof if a lock in the directory proves nothing.
func proves(dir *os.Root) error {
	local, err := isLocal(dir)
	if err == nil && !local {
		return fmt.Errorf("%w: the file system is not known to be local to this machine", store.ErrNoProof)
	}
	return err
}

// Name implements [store.Life].
func (l *life) Name() string { return l.name }

// File implements [store.Life].
func (l *life) File() *os.File {
	if runtime.GOOS == "windows" {
		return nil // there a lock ends with the process that has taken it
	}
	return l.file
}

// Close implements [store.Life]. The file remains if the record names it, so that others see
// that this life is over, and while a child has inherited it, as this life is not over then.
func (l *life) Close() error {
	if err := l.file.Close(); err != nil {
		return l.s.fail("end a life beside", err)
	}
	_ = l.s.inside("sweep", func(dir *os.Root) error { l.s.sweep(dir, []string{l.name}); return nil })
	return nil
}
