package node

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/epochs"
	"github.com/dmutex/dmutex/internal/wire"
	"github.com/dmutex/dmutex/ricart"
	"github.com/dmutex/dmutex/transport/memlink"
)

// LESSONS L74: the order of announcements is that of the epochs, and within an
// epoch the end comes after the beginning.
func TestTermsAreOrdered(t *testing.T) {
	ascending := []term{{}, {leader: 7, epoch: 1}, {epoch: 1}, {leader: 9, epoch: 2}, {epoch: 2}, {leader: 7, epoch: 1 << 40}}
	for i, a := range ascending {
		for j, b := range ascending {
			require.Equal(t, i > j, a.after(b), "%v after %v", a, b)
		}
	}
	require.False(t, term{leader: 7, epoch: 3}.after(term{leader: 9, epoch: 3}), "nobody can take an epoch over")
}

// A member that invents elections cannot fill the memory, nor hide those that this node observes
// or leads.
func TestTermsAreBounded(t *testing.T) {
	var ts terms
	seen := ts.observe("seen", 1)
	for i := range maxElections + 10 {
		ts.learn(fmt.Sprint(i), term{leader: 7, epoch: 1}, nil)
	}
	require.Len(t, ts.elections, maxElections)
	ts.learn("seen", term{leader: 7, epoch: 1}, nil)
	got, _ := ts.read(seen)
	require.Equal(t, term{leader: 7, epoch: 1}, got)
	ts.learn("own", term{leader: 3, epoch: 2}, func(error) {})
	require.Equal(t, map[string]term{"own": {leader: 3, epoch: 2}}, ts.renew(9, func(term) bool { return false }))
}

// Each of several nodes sends its announcements in order, and the announcements of different nodes
// are mixed on their way. The terms of an observer only rise, and the last is the newest.
func TestTermsInAnyOrder(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 0))
		var (
			says   [3][]term // by each of three nodes
			newest term
			ts     terms
		)
		for epoch := range uint64(1 + rng.IntN(6)) {
			node := rng.IntN(len(says))
			newest = term{epoch: epoch + 1}
			says[node] = append(says[node], term{leader: dmutex.NodeID(node + 1), epoch: epoch + 1}, newest)
		}
		e := ts.observe("x", 1)
		seen, news := ts.read(e)
		for left := true; left; {
			left = false
			order := rng.Perm(len(says))
			for _, node := range order {
				if len(says[node]) == 0 {
					continue
				}
				left = true
				ts.learn("x", says[node][0], nil)
				says[node] = says[node][1:]
				break
			}
			now, next := ts.read(e)
			if now != seen {
				require.True(t, now.after(seen), "seed %d: %v after %v", seed, now, seen)
				<-news // the observer was told
			}
			seen, news = now, next
		}
		require.Equal(t, newest, seen, "seed %d", seed)
	}
}

// A node remembers the elections that have a leader or an observer, and a few hundred others.
func TestTermsAreForgotten(t *testing.T) {
	var ts terms
	vacate := func(name string) {
		ts.learn(name, term{leader: 7, epoch: 1}, nil)
		ts.learn(name, term{epoch: 1}, nil)
	}
	vacate("observed") // vacant before it is observed
	observed := ts.observe("observed", 1)
	for i := range uint64(10 * keepVacant) {
		name := fmt.Sprint("election ", i)
		ts.learn(name, term{leader: 7, epoch: i + 1}, nil)
		ts.observe(fmt.Sprint("never led ", i), 1)
		ts.observe(fmt.Sprint("never led ", i), -1)
		require.LessOrEqual(t, len(ts.elections), keepVacant+2)
		ts.learn(name, term{epoch: i + 1}, nil)
	}
	require.LessOrEqual(t, len(ts.elections), keepVacant+1)
	require.LessOrEqual(t, cap(ts.vacant), 4*keepVacant)
	require.Same(t, observed, ts.elections["observed"])

	vacate("led")
	ts.learn("led", term{leader: 7, epoch: 2}, func(error) {})
	for i := range 10 * keepVacant {
		ts.observe(fmt.Sprint("never led ", i), 1)
		ts.observe(fmt.Sprint("never led ", i), -1)
	}
	require.EqualValues(t, 7, ts.elections["led"].leader, "a leader is not forgotten")
	require.NotNil(t, ts.elections["led"].resign)
	ts.learn("led", term{epoch: 2}, nil)
	require.Nil(t, ts.elections["led"].resign, "a vacant election keeps a context alive")
}

// The terms of a life end with it. The terms of the next life of the same node, in a later view, go
// on.
func TestTermsOfALifeThatIsGone(t *testing.T) {
	var ts terms
	const view = 3
	first, next := epochs.First(view-1), epochs.First(view)
	ts.learn("x", term{leader: 7, epoch: first + 1}, nil)
	ts.learn("y", term{leader: 8, epoch: first + 1}, nil)
	ts.learn("z", term{leader: 7, epoch: next + 1}, nil)
	ts.renew(view, func(t term) bool { return t.leader != 8 })
	require.Equal(t, term{epoch: first + 1}, ts.elections["x"].term)
	require.Equal(t, term{leader: 8, epoch: first + 1}, ts.elections["y"].term)
	require.Equal(t, term{leader: 7, epoch: next + 1}, ts.elections["z"].term)
}

// resign ends the context of a leader under no mutex, because methods of that context may use the
// node.
func TestResignUnderNoLock(t *testing.T) {
	var ts terms
	free := false
	ts.learn("x", term{leader: 7, epoch: 1}, func(error) {
		if free = ts.mu.TryLock(); free {
			ts.mu.Unlock()
		}
	})
	ts.resign("x")
	require.True(t, free)
}

func announcement(leads byte, epoch uint64, name string) []byte {
	b := wire.Write([]byte{saysLeads}, func(f *wire.Fields) {
		wire.Number(f, &epoch)
		f.Name(&name, maxElection)
	})
	return append(b, leads)
}

// A malformed announcement is refused, and changes nothing.
func TestAnnouncement(t *testing.T) {
	for _, want := range []struct {
		name string
		term
	}{
		{"x", term{leader: 7, epoch: 5}},
		{strings.Repeat("x", maxElection), term{epoch: epochs.First(9) + 5}},
	} {
		want := &message{says: saysLeads, number: want.epoch, name: want.name, leads: want.leader != dmutex.None}
		got, err := readMessage(want.encode(), 3)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}

	for _, bad := range [][]byte{
		{saysLeads},
		announcement(1, 5, ""),
		announcement(1, 0, "x"),
		announcement(2, 5, "x"),
		announcement(1, 5, strings.Repeat("x", maxElection+1)),
	} {
		net, err := memlink.New(memlink.Config{})
		require.NoError(t, err)
		n, err := OpenStrict(t.Context(), 1, []dmutex.NodeID{1, 7}, net.Link(1), Config{Algorithm: ricart.New})
		require.NoError(t, err)
		n.group.Message(7, 1, bad)
		require.EqualValues(t, 1, n.Status().Refused, "%q", bad)
		require.NoError(t, n.Status().Err)
		require.Empty(t, n.terms.elections)
		require.NoError(t, n.Close(context.Background()))
	}
}
