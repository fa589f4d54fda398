package storetest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/store"
)

// RunProver tests that a kind of store keeps the contract of [store.Prover], in addition to [Run]. It
// starts witnesses, and kills them: processes that run the test's executable again, with the
// test that has called RunProver. open opens the record of a group at a place, such as a
// directory or an address. The processes get the same place. The test must do nothing
// before RunProver except choose the place.
func RunProver(t *testing.T, place string, open func(t *testing.T, place, group string) store.Prover) {
	if group := os.Getenv(witnessGroup); group != "" {
		witness(t, os.Getenv(witnessPlace), group, open)
		return
	}
	self := t.Name()
	for i, test := range []struct {
		name string
		run  func(*court)
	}{
		{"a life is over when its process is killed", (*court).killed},
		{"a life is over when it is closed", (*court).closed},
		{"a child inherits a life", (*court).inherited},
		{"a life that nobody knows", (*court).unknown},
		{"a context that ends", (*court).canceled},
	} {
		t.Run(test.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			group := "prove" + string(rune('a'+i))
			test.run(&court{t, ctx, self, place, group, open(t, place, group)})
		})
	}
}

const (
	witnessGroup = "DMUTEX_STORETEST_GROUP"
	witnessPlace = "DMUTEX_STORETEST_PLACE"
	witnessChild = "DMUTEX_STORETEST_CHILD" // "has": starts a child that inherits the life; "outlives": and closes its own; "is": that child
	testimony    = "DMUTEX_STORETEST_LIFE="
)

// witness runs in a witness, until that is killed or its input ends.
func witness(t *testing.T, place, group string, open func(t *testing.T, place, group string) store.Prover) {
	child := os.Getenv(witnessChild)
	if child != "is" {
		l, err := open(t, place, group).Live(t.Context())
		require.NoError(t, err)
		if child != "" {
			cmd := exec.Command(os.Args[0], os.Args[1:]...)
			cmd.Env = append(os.Environ(), witnessChild+"=is")
			cmd.Stdin, cmd.ExtraFiles = os.Stdin, []*os.File{l.File()}
			require.NoError(t, cmd.Start())
		}
		if child == "outlives" {
			require.NoError(t, l.Close())
		}
		fmt.Println(testimony + l.Name())
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// A court is one test of a prover.
type court struct {
	*testing.T
	ctx          context.Context
	test         string // that calls RunProver
	place, group string
	store.Prover // as this process has opened it
}

// A process is a witness.
type process struct {
	life  string
	kill  func() // and wait until it has ended
	close func() // its input, and that of its child
}

func (c *court) start(child string) process {
	c.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^"+strings.ReplaceAll(regexp.QuoteMeta(c.test), "/", "$/^")+"$")
	// A witness that is killed leaves its temporary folders behind, so they are in ours.
	cmd.Env = append(os.Environ(), witnessGroup+"="+c.group, witnessPlace+"="+c.place, witnessChild+"="+child, "TMPDIR="+c.TempDir())
	cmd.Stderr = os.Stderr
	input, err := cmd.StdinPipe()
	require.NoError(c, err)
	out, err := cmd.StdoutPipe()
	require.NoError(c, err)
	require.NoError(c, cmd.Start())
	p := process{
		kill: func() {
			_ = cmd.Process.Kill()
			_, _ = cmd.Process.Wait()
		},
		close: func() { input.Close() },
	}
	c.Cleanup(func() {
		p.close()
		p.kill()
	})
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if name, ok := strings.CutPrefix(lines.Text(), testimony); ok {
			p.life = name
			require.Regexp(c, "^[0-9A-Za-z]{1,64}$", name)
			return p
		}
	}
	require.Fail(c, "the test's executable is no witness: does the test do something before RunProver?")
	return p
}

// over requires that Over and Living say that the life is over.
func (c *court) over(name string) {
	c.Helper()
	require.NoError(c, c.Over(c.ctx, name))
	require.NotContains(c, c.living(), name)
}

func (c *court) living() []string {
	c.Helper()
	names, err := c.Living(c.ctx)
	require.NoError(c, err)
	return names
}

// lasts requires that the life is not over.
func (c *court) lasts(name string) {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.ctx, 10*time.Millisecond)
	defer cancel()
	require.ErrorIs(c, c.Over(ctx, name), context.DeadlineExceeded, "the life is not over")
}

// waiting begins an Over, and returns a function that waits for it.
func (c *court) waiting(name string) (returns func()) {
	done := make(chan error, 1)
	go func() { done <- c.Over(c.ctx, name) }()
	return func() {
		c.Helper()
		require.NoError(c, <-done)
	}
}

func (c *court) live() store.Life {
	c.Helper()
	l, err := c.Live(c.ctx)
	require.NoError(c, err)
	return l
}

// keep writes a name into the record.
func (c *court) keep(name string) {
	c.Helper()
	_, rev, err := c.Load(c.ctx)
	require.NoError(c, err)
	_, err = c.Swap(c.ctx, []byte("held by "+name+" now"), rev)
	require.NoError(c, err)
}

func (c *court) killed() {
	require.Empty(c, c.living())
	c.ends(c.start(""), c.start(""))
}

func (c *court) closed() {
	own := func() process {
		l := c.live()
		end := func() { require.NoError(c, l.Close()) }
		return process{l.Name(), end, end}
	}
	c.ends(own(), own())
}

// ends checks that two lives are over when they are ended. The life in the record stays known
// while other lives begin and end.
func (c *court) ends(first, second process) {
	c.Helper()
	require.NotEqual(c, first.life, second.life)
	returns := c.waiting(first.life)
	require.ElementsMatch(c, []string{first.life, second.life}, c.living())
	c.lasts(first.life)
	c.keep(first.life)
	first.kill()
	returns()
	for range 3 {
		c.over(first.life)
		other := c.live()
		c.over(first.life)
		require.NoError(c, other.Close())
	}
	require.Equal(c, []string{second.life}, c.living())
	c.keep(second.life)
	second.close() // a process ends by itself then
	c.over(second.life)
	require.Empty(c, c.living())
	c.over(second.life) // the record names it
}

func (c *court) inherited() {
	l := c.live()
	none := l.File() == nil
	require.NoError(c, l.Close())
	if none {
		c.Skip("no child can inherit a life")
	}
	for _, child := range []string{"has", "outlives"} {
		p := c.start(child)
		returns := c.waiting(p.life)
		if child == "has" { // else the witness has closed the life, which no record names
			c.keep(p.life)
			p.kill()
		}
		require.Equal(c, []string{p.life}, c.living(), "the child lives")
		c.lasts(p.life)
		p.close()
		returns()
		require.Empty(c, c.living())
	}
}

func (c *court) unknown() {
	there := *c
	there.group += "other"
	elsewhere := there.start("")
	l := c.live()
	defer l.Close()
	require.Equal(c, []string{l.Name()}, c.living())
	made := []byte(l.Name()) // a name that only looks like that of a life
	slices.Reverse(made)
	for _, name := range []string{"", "x", "../" + l.Name(), l.Name() + "x", l.Name() + "\n", strings.Repeat("x", 1000), string(made), elsewhere.life} {
		require.ErrorIs(c, c.Over(c.ctx, name), store.ErrNoProof, "%q", name)
	}
}

// No canceled call waits, and none leaves a life behind.
func (c *court) canceled() {
	ctx, cancel := context.WithCancel(c.ctx)
	l, err := c.Live(ctx)
	require.NoError(c, err)
	cancel() // ends no life that has begun
	c.lasts(l.Name())
	for range 20 {
		ctx, cancel := context.WithCancel(c.ctx)
		over := make(chan error)
		go func() { over <- c.Over(ctx, l.Name()) }()
		go cancel()
		other, err := c.Live(ctx)
		if err == nil {
			require.NoError(c, other.Close())
		}
		_, _ = c.Living(ctx)
		require.ErrorIs(c, <-over, context.Canceled)
	}
	require.Eventually(c, func() bool { return len(c.living()) == 1 }, patience, time.Millisecond)
	c.keep(l.Name())
	returns := c.waiting(l.Name())
	require.NoError(c, l.Close())
	returns()
}
