package filestore_test

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/store"
	"github.com/dmutex/dmutex/store/filestore"
	"github.com/dmutex/dmutex/store/storetest"
)

// TestMain lets the test's executable be another process; see spawn.
func TestMain(m *testing.M) {
	if path := os.Getenv("DMUTEX_FILESTORE"); path != "" {
		s, err := filestore.Open(path)
		for err == nil {
			err = increment(context.Background(), s)
			fmt.Println(err)
		}
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// spawn starts a process that increments the number in the file until it is killed, and
// returns its lines, one for each increment.
func spawn(t *testing.T, path string) (*exec.Cmd, *bufio.Reader) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "DMUTEX_FILESTORE="+path)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd, bufio.NewReader(out)
}

func increment(ctx context.Context, s store.Store) error {
	for {
		n, rev, err := load(ctx, s)
		if err != nil {
			return err
		}
		_, err = s.Swap(ctx, []byte(strconv.Itoa(n+1)), rev)
		if !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
}

func load(ctx context.Context, s store.Store) (int, store.Revision, error) {
	value, rev, err := s.Load(ctx)
	if err != nil || len(value) == 0 {
		return 0, rev, err
	}
	n, err := strconv.Atoi(string(value))
	return n, rev, err
}

func open(t *testing.T, path string) store.Store {
	s, err := filestore.Open(path)
	require.NoError(t, err)
	return s
}

func TestStore(t *testing.T) {
	dir := t.TempDir()
	storetest.Run(t, func(t *testing.T, group string) store.Store {
		return open(t, filepath.Join(dir, group))
	})
}

func TestProver(t *testing.T) {
	storetest.RunProver(t, t.TempDir(), func(t *testing.T, dir, group string) store.Prover {
		return open(t, filepath.Join(dir, group)).(store.Prover)
	})
}

// On a file system where locks prove nothing, the store returns ErrNoProof, and not if it could not look.
func TestNoProof(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "group")).(store.Prover)
	l, err := s.Live(t.Context())
	require.NoError(t, err)
	defer l.Close()
	broken := errors.New("broken")
	for _, failure := range []error{nil, broken} {
		filestore.Fail(t, "look at the file system", failure)
		_, living := s.Living(t.Context())
		_, live := s.Live(t.Context())
		for _, err := range []error{living, live, s.Over(t.Context(), l.Name())} {
			require.ErrorIs(t, err, cmp.Or(failure, store.ErrNoProof))
			require.Equal(t, failure == nil, errors.Is(err, store.ErrNoProof), "a failure may pass")
		}
	}
	require.NoError(t, increment(t.Context(), s), "the record needs no proof")
}

// If the directory is moved while Living reads it, no life counts as over.
func TestMoved(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "dir")
	require.NoError(t, os.Mkdir(dir, 0o700))
	s := open(t, filepath.Join(dir, "group")).(store.Prover)
	l, err := s.Live(t.Context())
	require.NoError(t, err)
	defer l.Close()
	filestore.SpellOtherwise(t, func(name string) string {
		_ = os.Rename(dir, dir+" moved")
		return name
	})
	living, err := s.Living(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{l.Name()}, living)
}

// On a file system that ignores case, Living sees lives under every spelling of the record's path.
func TestOtherSpelling(t *testing.T) {
	dir := t.TempDir()
	s := open(t, filepath.Join(dir, "group")).(store.Prover)
	l, err := s.Live(t.Context())
	require.NoError(t, err)
	defer l.Close()
	filestore.SpellOtherwise(t, func(name string) string { return strings.Replace(name, "group", "GROUP", 1) })
	names, err := s.Living(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{l.Name()}, names)
	names, err = open(t, filepath.Join(dir, "another")).(store.Prover).Living(t.Context())
	require.NoError(t, err)
	require.Empty(t, names)
}

// Live removes what killed processes have left behind, and nothing else.
func TestSweep(t *testing.T) {
	path := filepath.Join(t.TempDir(), "group")
	file := func(name string) string { return filepath.Join(filepath.Dir(path), ".lives", "group."+name) }
	require.NoError(t, os.Mkdir(filepath.Dir(file("")), 0o700))
	leave := func(name string) {
		require.NoError(t, os.WriteFile(file(name), nil, 0o600))
	}
	dead, named := strings.Repeat("D", 26), strings.Repeat("N", 26)
	for _, name := range []string{dead, named, "txt", strings.Repeat("d", 26), dead + "D"} {
		leave(name)
	}
	s := open(t, path).(store.Prover)
	_, err := s.Swap(t.Context(), []byte("{"+named+"}"), "")
	require.NoError(t, err)
	first, err := s.Live(t.Context())
	require.NoError(t, err)
	second, err := s.Live(t.Context())
	require.NoError(t, err)
	require.NoFileExists(t, file(dead))
	for _, name := range []string{named, "txt", strings.Repeat("d", 26), dead + "D", first.Name(), second.Name()} {
		require.FileExists(t, file(name))
	}
	require.NoError(t, s.Over(t.Context(), named))
	require.NoError(t, first.Close())
	require.NoError(t, second.Close())
	require.NoFileExists(t, file(second.Name()), "the record does not name it")
}

// A life that gets into the record and ends while Live looks what to remove stays known.
func TestSweepMeanwhile(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "group")).(store.Prover)
	require.NoError(t, increment(t.Context(), s))
	_, rev, err := s.Load(t.Context())
	require.NoError(t, err)
	l, err := s.Live(t.Context())
	require.NoError(t, err)
	filestore.AfterRead(func() {
		_, err = s.Swap(t.Context(), []byte(l.Name()), rev)
		_ = l.Close()
	})
	other, live := s.Live(t.Context())
	require.NoError(t, live)
	defer other.Close()
	_, _, load := s.Load(t.Context()) // if Live has not read the record
	require.NoError(t, load)
	require.NoError(t, err)
	require.NoError(t, s.Over(t.Context(), l.Name()))
}

// Two processes increment one number. Each is killed at any moment, and replaced. No increment
// is lost, and none is half done.
func TestProcesses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "group")
	acknowledged, killed := 0, 0
	await := func(out *bufio.Reader) bool {
		line, err := out.ReadString('\n')
		if err == io.EOF {
			return false
		}
		require.NoError(t, err)
		require.Equal(t, "<nil>\n", line)
		acknowledged++
		return true
	}
	for range 10 {
		first, one := spawn(t, path)
		second, other := spawn(t, path)
		for range 3 {
			require.True(t, await(one))
			require.True(t, await(other))
		}
		for _, process := range []*exec.Cmd{first, second} {
			require.NoError(t, process.Process.Kill())
			killed++
		}
		for await(one) {
		}
		for await(other) {
		}
	}
	n, _, err := load(t.Context(), open(t, path))
	require.NoError(t, err)
	require.GreaterOrEqual(t, n, acknowledged, "increments are lost")
	require.LessOrEqual(t, n, acknowledged+killed, "increments that nobody made")
}

// A half-written file that a killed process has left behind does not matter.
func TestLeftovers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "group")
	s := open(t, path)
	require.NoError(t, increment(t.Context(), s))
	require.NoError(t, os.WriteFile(path+".new", []byte("half a rec"), 0o600))
	require.NoError(t, increment(t.Context(), s))
	n, _, err := load(t.Context(), s)
	require.NoError(t, err)
	require.Equal(t, 2, n)
}

// A deleted file begins again, and a file from a backup goes on. Neither repeats a revision.
func TestRestored(t *testing.T) {
	path := filepath.Join(t.TempDir(), "group")
	s := open(t, path)
	require.NoError(t, increment(t.Context(), s))
	backup, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, increment(t.Context(), s))
	_, lost, err := s.Load(t.Context())
	require.NoError(t, err)

	require.NoError(t, os.WriteFile(path, backup, 0o600))
	require.NoError(t, increment(t.Context(), s))
	_, err = s.Swap(t.Context(), []byte("9"), lost)
	require.ErrorIs(t, err, store.ErrConflict)

	require.NoError(t, os.Remove(path))
	value, _, err := s.Load(t.Context())
	require.NoError(t, err)
	require.Empty(t, value)
	for range 2 {
		require.NoError(t, increment(t.Context(), s))
	}
	_, err = s.Swap(t.Context(), []byte("9"), lost)
	require.ErrorIs(t, err, store.ErrConflict)
}

// An error that no later call can overcome is returned at once, and leaves no other file behind.
func TestUnusable(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		return path
	}
	record := strings.Repeat("A", 26) + "\n"
	for _, test := range []struct{ path, says string }{
		{filepath.Join(dir, "nowhere", "group"), "no such file or directory"},
		{filepath.Join(file("file", ""), "group"), "not a directory"},
		{dir, "is not a regular file: use another path"},
		{file("empty", ""), "empty is not a record: remove it, or use another path"},
		{file("letter", "Dear Sir,\nyours"), "letter is not a record: remove it, or use another path"},
		{file("large", record+strings.Repeat("a", store.MaxValue+1)), "large is not a record"},
	} {
		_, err := filestore.Open(test.path)
		require.ErrorIs(t, err, store.ErrUnusable)
		require.ErrorContains(t, err, test.says)
		require.NoFileExists(t, test.path+".lock")
	}

	for _, spoil := range []func(path string) error{
		func(path string) error { return os.WriteFile(path, []byte("Dear Sir,\nyours"), 0o600) },
		func(path string) error { return os.Mkdir(path, 0o700) },
		func(path string) error { return os.RemoveAll(filepath.Dir(path)) },
	} {
		path := filepath.Join(t.TempDir(), "group")
		s := open(t, path)
		require.NoError(t, spoil(path))
		storetest.Unusable(t, s, "")
	}
}

// The largest value fits. A larger value, which no Load would read, is not written.
func TestTooLarge(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "group"))
	rev, err := s.Swap(t.Context(), make([]byte, store.MaxValue), "")
	require.NoError(t, err)
	_, err = s.Swap(t.Context(), make([]byte, store.MaxValue+1), rev)
	require.ErrorContains(t, err, "the value has 65537 bytes, and the file takes at most 65536")
	_, last, err := s.Load(t.Context())
	require.NoError(t, err)
	require.Equal(t, rev, last)
}

// When the file system fails, the call fails, and the record is the old one or the new one.
func TestFailingFileSystem(t *testing.T) {
	broken := errors.New("broken")
	for _, test := range []struct {
		step        string
		loads, done bool // although the step fails
	}{
		{"read", false, false},
		{"sync", true, false},
		{"rename", true, false},
		{"sync the directory", false, true},
	} {
		t.Run(test.step, func(t *testing.T) {
			s := open(t, filepath.Join(t.TempDir(), "group"))
			old, err := s.Swap(t.Context(), []byte("old"), "")
			require.NoError(t, err)
			t.Run("broken", func(t *testing.T) {
				filestore.Fail(t, test.step, broken)
				_, err := s.Swap(t.Context(), []byte("new"), old)
				require.ErrorIs(t, err, broken)
				require.NotErrorIs(t, err, store.ErrConflict)
				require.NotErrorIs(t, err, store.ErrUnusable, "the failure may be over soon")
				_, _, err = s.Load(t.Context())
				if test.loads {
					require.NoError(t, err)
				} else {
					require.ErrorIs(t, err, broken)
				}
			})
			value, rev, err := s.Load(t.Context())
			require.NoError(t, err)
			if test.done {
				require.Equal(t, "new", string(value))
				require.NotEqual(t, old, rev)
			} else {
				require.Equal(t, "old", string(value))
				require.Equal(t, old, rev)
			}
			_, err = s.Swap(t.Context(), []byte("next"), rev)
			require.NoError(t, err)
			filestore.Fail(t, "sync the directory", broken)
			_, _, err = s.Load(t.Context())
			require.NoError(t, err, "a Swap that has returned leaves nothing to sync")
		})
	}
}

// Loads that the file system does not answer do not accumulate: the others wait for the first.
func TestStuckLoads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, filepath.Join(t.TempDir(), "group"))
		_, err := s.Swap(t.Context(), []byte("a"), "")
		require.NoError(t, err)
		until := make(chan struct{})
		reads := filestore.StickReads(t, until)
		for range 3 {
			go func() { _, _, _ = s.Load(t.Context()) }()
		}
		synctest.Wait()
		require.EqualValues(t, 1, reads.Load())
		close(until)
		synctest.Wait()
		require.EqualValues(t, 3, reads.Load())
	})
}

// A process that is stopped while it has the lock blocks other Swaps until their contexts end.
// It blocks no Load. A Swap that was given up writes nothing later.
func TestLocked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "group")
	s := open(t, path)
	require.NoError(t, increment(t.Context(), s))
	lock := filestore.Lock(t, s)
	_, rev, err := s.Load(t.Context())
	require.NoError(t, err)
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		_, err = s.Swap(ctx, []byte("given up"), rev)
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
	}
	require.ErrorContains(t, err, "another process has the lock")
	_, _, err = s.Load(t.Context())
	require.NoError(t, err)
	require.NoError(t, lock.Close())
	require.NoError(t, increment(t.Context(), s))
	n, _, err := load(t.Context(), s)
	require.NoError(t, err)
	require.Equal(t, 2, n)
}

// A record is no file of another record: that one would remove it, or lock it.
func TestOthersFiles(t *testing.T) {
	dir := t.TempDir()
	open(t, filepath.Join(dir, "lock"))
	open(t, filepath.Join(dir, "x.lock.1"))
	for _, name := range []string{"x.lock", "x.new", "x.LOCK", ".new"} {
		_, err := filestore.Open(filepath.Join(dir, name))
		require.ErrorContains(t, err, "choose another name", name)
		require.NoFileExists(t, filepath.Join(dir, name))
	}
}
