//go:build unix

package serve

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool/tooltest"
)

// A service is three members that serve clients.
type service struct {
	t       *testing.T
	lease   time.Duration
	flags   []string // of each member
	members [3]*process
	runs    []string // flags of dmutex run
}

// startService starts a service over a link. The lease is longer in the long form.
func startService(t *testing.T, link string) *service {
	s := &service{t: t, lease: 4 * time.Second}
	if os.Getenv("DMUTEX_LONG") != "" {
		s.lease = 10 * time.Second
	}
	group := filepath.Join(t.TempDir(), "members")
	switch link {
	case "NATS":
		group = startNATS(t, server.Options{}).ClientURL() + "/invoices"
	case "TLS":
		files := certificate(t)
		s.runs = []string{"--cert=" + files.Cert, "--key=" + files.Key, "--authority=" + files.Authority}
	}
	s.flags = append([]string{"--lease=" + s.lease.String(), "--group=" + group}, s.runs...)
	for i := range s.members {
		s.start(i)
	}
	at := s.members[0].clients + "," + s.members[1].clients + "," + s.members[2].clients
	if link == "NATS" {
		at = group
	}
	s.runs = append(s.runs, "--at="+at)
	s.ready()
	return s
}

// start starts a member, again where it was if it was there before.
func (s *service) start(i int) {
	listen := "127.0.0.1:0"
	if s.members[i] != nil {
		listen = s.members[i].clients
	}
	s.members[i] = start(s.t, exec.Command(os.Args[0], append([]string{"serve", "--http=127.0.0.1:0", "--listen=" + listen}, s.flags...)...))
}

// ready waits until all members act.
func (s *service) ready() {
	s.t.Helper()
	for _, m := range s.members {
		require.Eventually(s.t, func() bool {
			answer, err := http.Get(m.page + "/ready")
			if err != nil {
				return false
			}
			_ = answer.Body.Close()
			return answer.StatusCode == http.StatusOK
		}, tooltest.TooLong, 10*time.Millisecond)
	}
}

// serves returns how many clients a member serves.
func (s *service) serves(i int) (clients int) {
	_, text, _ := strings.Cut(s.members[i].shows("/metrics"), "\ndmutex_clients ")
	_, err := fmt.Sscan(text, &clients)
	require.NoError(s.t, err)
	return clients
}

// run makes a dmutex run.
func (s *service) run(lock string, command ...string) *exec.Cmd {
	args := append([]string{"run", "--lock=" + lock}, s.runs...)
	return exec.Command(os.Args[0], append(append(args, "--"), command...)...)
}

// A job is a dmutex run that holds its lock until it is told to end.
type job struct {
	input io.Closer
	ended chan error
	said  strings.Builder
}

func (s *service) hold(lock string) *job {
	j := &job{ended: make(chan error, 1)}
	cmd := s.run(lock, "sh", "-c", "echo holds; cat")
	cmd.Stderr = &j.said
	in, err := cmd.StdinPipe()
	require.NoError(s.t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(s.t, err)
	require.NoError(s.t, cmd.Start())
	j.input = in
	_, err = io.ReadFull(out, make([]byte, len("holds\n")))
	require.NoError(s.t, err, &j.said)
	go func() { j.ended <- cmd.Wait() }()
	s.t.Cleanup(func() { _ = in.Close() })
	return j
}

// goOn requires that no job has ended after some time.
func (s *service) goOn(jobs []*job, howLong time.Duration) {
	s.t.Helper()
	late := time.After(howLong)
	for _, j := range jobs {
		select {
		case err := <-j.ended:
			require.Fail(s.t, "a job was ended", "%v: %s", err, &j.said)
		case <-late:
			late = time.After(0)
		}
	}
}

// Jobs hold locks while the members are replaced one after the other, and while one of them is killed:
// none is ended. Then all members are killed and started again. That costs about one lease.
func TestMembersEnd(t *testing.T) {
	for _, link := range []string{"TCP", "TLS", "NATS"} {
		t.Run(link, func(t *testing.T) {
			t.Parallel()
			s := startService(t, link)
			var jobs []*job
			for i := range 6 {
				jobs = append(jobs, s.hold("job/"+strconv.Itoa(i)))
			}
			for i, m := range s.members {
				clients, began := s.serves(i), time.Now()
				require.NoError(t, m.cmd.Process.Signal(syscall.SIGTERM))
				require.NoError(t, m.cmd.Wait())
				t.Logf("a member with %d clients ends in %v", clients, time.Since(began))
				require.Less(t, time.Since(began), s.lease/2)
				s.start(i)
				s.ready()
			}
			most := 0
			for i := range s.members {
				if s.serves(i) > s.serves(most) {
					most = i
				}
			}
			t.Logf("a member with %d clients is killed", s.serves(most))
			require.NotZero(t, s.serves(most))
			s.members[most].kill()
			s.goOn(jobs, s.lease*5/4)
			s.start(most)
			s.ready()
			for _, j := range jobs {
				require.NoError(t, j.input.Close())
				require.NoError(t, <-j.ended, &j.said)
			}

			for i := range s.members {
				s.members[i].kill()
			}
			began := time.Now()
			for i := range s.members {
				s.start(i)
			}
			out, err := s.run("job/0", "true").CombinedOutput()
			require.NoError(t, err, "%s", out)
			took := time.Since(began)
			t.Logf("all members are killed: the next grant comes after %v", took)
			require.Less(t, took, s.lease*9/5)
		})
	}
}

// When the member of a client that holds nothing is killed, the client is served by another at once.
func TestNextGrant(t *testing.T) {
	t.Parallel()
	s := startService(t, "TCP")
	c := dial(t, tool.Security{}, s.members[:]...)
	for round := range s.members {
		require.NoError(t, tooltest.Acquire(t, c.Mutex(fmt.Sprint("before/", round))).Release()) // the member may die with it
		for i, m := range s.members {
			if m.clients != c.Status().Member {
				continue
			}
			m.kill()
			began := time.Now()
			for k := range 10 {
				require.NoError(t, tooltest.Acquire(t, c.Mutex(strconv.Itoa(k))).Release())
			}
			t.Logf("ten locks are granted after %v", time.Since(began))
			require.Less(t, time.Since(began), s.lease/2)
			s.start(i)
			s.ready()
			break
		}
	}
}

// TestCrashLoop kills a member every four seconds, and starts it again. Clients of the others ask for
// locks meanwhile, with a deadline of half a second.
func TestCrashLoop(t *testing.T) {
	if os.Getenv("DMUTEX_LONG") == "" {
		t.Skip("a measurement of two minutes: set DMUTEX_LONG=1")
	}
	for _, link := range []string{"TCP", "NATS"} {
		t.Run(link, func(t *testing.T) {
			s := startService(t, link)
			ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
			defer stop()
			var asked, failed atomic.Int64
			var load sync.WaitGroup
			for i := range 6 {
				c := dial(t, tool.Security{}, s.members[i%2])
				load.Go(func() {
					for tick := time.Tick(50 * time.Millisecond); ctx.Err() == nil; <-tick {
						load.Go(func() { // the next one does not wait for it
							brief, cancel := context.WithTimeout(t.Context(), time.Second/2)
							defer cancel()
							asked.Add(1)
							if held, err := c.Mutex(strconv.Itoa(rand.IntN(100))).Acquire(brief); err != nil {
								failed.Add(1)
							} else {
								_ = held.Release()
							}
						})
					}
				})
			}
			kills := 0
			for tick := time.Tick(4 * time.Second); ctx.Err() == nil; kills++ {
				<-tick
				s.members[2].kill()
				s.start(2)
			}
			load.Wait()
			share := float64(failed.Load()) / float64(asked.Load())
			t.Logf("%d kills, %d requests, %d failed: %.2f %%", kills, asked.Load(), failed.Load(), 100*share)
			if link == "TCP" {
				require.LessOrEqual(t, share, 0.01)
			}
		})
	}
}

// A member that is told to end while its record cannot be reached says so after --grace, with status 3, and
// nothing of clients, which it does not have.
func TestServeEndsWithoutRecord(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "group")
	require.NoError(t, os.Mkdir(dir, 0o700))
	s := serve(t, "--group="+filepath.Join(dir, "members"), "--lease=100ms", "--grace=300ms")
	s.says("view acts")
	require.NoError(t, os.Rename(dir, dir+".gone"))
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGTERM))
	said := s.says("dmutex: ")
	require.Contains(t, said, "close: the record still has this node, so the others wait until they exclude it")
	require.Contains(t, said, "the end took longer than --grace=300ms")
	var status *exec.ExitError
	require.ErrorAs(t, s.cmd.Wait(), &status)
	require.Equal(t, 3, status.ExitCode())
}
