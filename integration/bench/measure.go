package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// The figures.
const (
	figAcquire  = "Acquire, nobody else, p50 (us)"
	figRelease  = "Release call, p50 (us)"
	figCycle    = "Acquire and Release, p50 (us)"
	figHandOver = "hand-off, one waits, p50 (us)"
	figHandOff  = "hand-off, 8 contend, p50 (us)"
	figGrants2  = "grants a second, 2 contend"
	figGrants3  = "grants a second, 3 contend"
	figGrants   = "grants a second, 8 contend"
	figFairness = "fairness, 8 contend (Jain)"
	figMany     = "locks a second, 64 goroutines, 10,000 names"
	figLoad     = "messages of the busiest of 4 members / of each, 64 goroutines, 10,000 names"
)

var figures = []string{figAcquire, figRelease, figCycle, figHandOver, figHandOff, figGrants2, figGrants3, figGrants, figFairness, figMany, figLoad}

const (
	contenders     = 8
	manyClients    = 4
	manyGoroutines = 64
	manyNames      = 10_000
	seed           = 1

	// settle is how long handOver waits for the request to reach the queue or the
	// holder. (A client that polls may ask at any later time.)
	settle = time.Millisecond
)

// A cell is a system in an experiment. The function that open returns runs for some
// time and returns what it measured.
type cell struct {
	system string
	what   string // the experiment
	open   func(e *env) (run func(d time.Duration) (map[string]float64, error), err error)
}

// name is what --only matches.
func (c cell) name() string { return c.system + ", " + c.what }

// The systems that the variable systems does not list. The wires come first.
const (
	rawTCP       = "raw TCP, there and back"
	rawHop       = "raw TCP, one hop"
	rawFan2      = "raw TCP, fan-out to 2"
	rawFan7      = "raw TCP, fan-out to 7"
	rawRelay     = "raw TCP, there and back through a relay"
	rawRequest   = "raw NATS request"
	rawRelayNATS = "raw NATS request through a relay"
	centralOwn   = "dmutex central, own coordinator"
	centralAt1   = "dmutex central, all locks at one of the members"
	centralAll   = "dmutex central, each lock at its home"
	suzukiHome   = "dmutex suzukikasami, token at home"
	ringHome     = "dmutex ring, token at home"
	carvalho     = "dmutex ricart.Carvalho, nobody has asked since"
	ricart2      = "dmutex ricart, 2 peers"
	ricart7      = "dmutex ricart, 7 peers"
	clientTCP    = "dmutex client of a member"
	clientNear   = "dmutex client of the lock's home"
	memberTCP    = "dmutex member beside a client"
	clientNATS   = "dmutex client of a member, NATS"
	memberNATS   = "dmutex member beside a client, NATS"
)

func cells() []cell {
	list := []cell{
		{rawHop, "hand-over", oneWay},
		{rawTCP, "alone", wire(newFanOut(1))}, {rawFan2, "alone", wire(newFanOut(2))}, {rawFan7, "alone", wire(newFanOut(7))},
		{rawRelay, "alone", wire(newRelayed)},
		{rawRequest, "alone", request("raw")},
		{rawRelayNATS, "alone", request("relay", "relayed")},
		{centralOwn, "alone", clients(openTCP("central", 0), 2, reentry)},
		{suzukiHome, "alone", clients(openTCP("suzukikasami", 0), 2, reentry)},
		{ringHome, "alone", clients(openTCP("ring", 0), 2, reentry)},
		{carvalho, "alone", clients(openTCP("ricart.Carvalho", 0), 2, reentry)},
		{centralAt1, "load", load("central")},
		{centralAll, "load", load("central, homes")},
		{ricart2, "alone", clients(openTCP("ricart", 2), 1, alone)},
		{ricart7, "alone", clients(openTCP("ricart", 7), 1, alone)},
		servedCell(clientTCP, false), servedCell(memberTCP, false), servedCell(clientNear, false),
		servedCell(clientNATS, true), servedCell(memberNATS, true),
	}
	for _, s := range systems {
		if s.name != ricartTCP {
			list = append(list, cell{s.name, "alone", clients(s.open, 2, alone)})
		}
		switch s.name {
		case ricartTCP:
			list = append(list, cell{s.name, "hand-over", handAway("ricart")})
		case suzukiTCP:
			list = append(list, cell{s.name, "hand-over", handAway("suzukikasami")})
		default:
			list = append(list, cell{s.name, "hand-over", clients(s.open, 2, handOver)})
		}
		if s.name == centralNATS || s.name == natsKV {
			list = append(list, cell{s.name, "contended by 2", clients(s.open, 2, contended(figGrants2))})
			list = append(list, cell{s.name, "contended by 3", clients(s.open, 3, contended(figGrants3))})
		}
		list = append(list, cell{s.name, "contended", clients(s.open, contenders, contended(figGrants))})
		if slices.Contains([]string{bare, centralTCP, redisLock, postgres}, s.name) {
			list = append(list, cell{s.name, "many", clients(s.open, manyClients, many)})
		}
	}
	return list
}

func wire(open func(e *env) (*fanOut, error)) func(e *env) (func(time.Duration) (map[string]float64, error), error) {
	return func(e *env) (func(time.Duration) (map[string]float64, error), error) {
		f, err := open(e)
		if err != nil {
			return nil, err
		}
		return middle(f.run), nil
	}
}

func request(subjects ...string) func(e *env) (func(time.Duration) (map[string]float64, error), error) {
	return func(e *env) (func(time.Duration) (map[string]float64, error), error) {
		run, err := rawNATS(e, subjects...)
		return middle(run), err
	}
}

// middle returns the median of the measurements as the figure of an Acquire.
func middle(run func(d time.Duration) ([]float64, error)) func(d time.Duration) (map[string]float64, error) {
	return func(d time.Duration) (map[string]float64, error) {
		taken, err := run(d)
		return map[string]float64{figAcquire: median(taken)}, err
	}
}

func clients(open func(e *env, clients int) ([]client, error), n int, run func(e *env, list []client, d time.Duration) (map[string]float64, error)) func(e *env) (func(time.Duration) (map[string]float64, error), error) {
	return func(e *env) (func(time.Duration) (map[string]float64, error), error) {
		list, err := open(e, n)
		if err != nil {
			return nil, err
		}
		return func(d time.Duration) (map[string]float64, error) { return run(e, list, d) }, nil
	}
}

// alone is one client that locks again and again.
func alone(e *env, list []client, d time.Duration) (map[string]float64, error) {
	var acquires, releases, cycles []float64
	_, err := times(d, func() error {
		before := time.Now()
		release, err := list[0](e.ctx, "alone")
		if err != nil {
			return err
		}
		between := time.Now()
		err = release()
		acquires = append(acquires, micros(between.Sub(before)))
		after := time.Now()
		releases = append(releases, micros(after.Sub(between)))
		cycles = append(cycles, micros(after.Sub(before)))
		return err
	})
	return map[string]float64{figAcquire: median(acquires), figRelease: median(releases), figCycle: median(cycles)}, err
}

// reentry is alone for locks that take too little time to read the clock for each: it
// measures 100 at a time.
func reentry(e *env, list []client, d time.Duration) (map[string]float64, error) {
	const batch = 100
	taken, err := times(d, func() error {
		for range batch {
			release, err := list[0](e.ctx, "alone")
			if err != nil {
				return err
			}
			if err := release(); err != nil {
				return err
			}
		}
		return nil
	})
	return map[string]float64{figCycle: median(taken) / batch}, err
}

// handOver lets two clients take turns: one waits while the other holds. It measures from the call
// of release to the return of Acquire.
func handOver(e *env, list []client, d time.Duration) (map[string]float64, error) {
	type grant struct {
		at      time.Time
		release func() error
		err     error
	}
	release, err := list[0](e.ctx, "hand-over")
	if err != nil {
		return nil, err
	}
	granted := make(chan grant)
	var taken []float64
	for begin, turn := time.Now(), 1; time.Since(begin) < d || len(taken) == 0; turn++ {
		go func() {
			release, err := list[turn%2](e.ctx, "hand-over")
			granted <- grant{time.Now(), release, err}
		}()
		time.Sleep(settle)
		before := time.Now()
		if err := release(); err != nil {
			return nil, err
		}
		g := <-granted
		if g.err != nil {
			return nil, g.err
		}
		taken, release = append(taken, micros(g.at.Sub(before))), g.release
	}
	return map[string]float64{figHandOver: median(taken)}, release()
}

// handAway is handOver to a member that is a process of its own.
func handAway(algorithm string) func(e *env) (func(d time.Duration) (map[string]float64, error), error) {
	return func(e *env) (func(d time.Duration) (map[string]float64, error), error) {
		others, nodes, err := openGroup(e, part{Algorithm: algorithm}, 1, 1)
		if err != nil {
			return nil, err
		}
		list := clientsOf(nodes)
		return func(d time.Duration) (map[string]float64, error) {
			var taken []float64
			for begin := time.Now(); time.Since(begin) < d || len(taken) == 0; {
				release, err := list[0](e.ctx, rivalry)
				if err != nil {
					return nil, err
				}
				if err := others[0].Tell(true); err != nil {
					return nil, err
				}
				time.Sleep(settle)
				before := time.Now()
				if err := release(); err != nil {
					return nil, err
				}
				var at int64
				if err := others[0].Hear(&at); err != nil {
					return nil, err
				}
				taken = append(taken, float64(at-before.UnixNano())/1e3)
			}
			return map[string]float64{figHandOver: median(taken)}, nil
		}, nil
	}
}

// contended lets all clients want one lock all the time. With 8 clients it also measures
// hand-offs and how evenly the clients share the lock.
func contended(figure string) func(e *env, list []client, d time.Duration) (map[string]float64, error) {
	return func(e *env, list []client, d time.Duration) (map[string]float64, error) {
		seen, err := contend(e, list, d)
		if figure == figGrants {
			return seen, err
		}
		return map[string]float64{figure: seen[figGrants]}, err
	}
}

func contend(e *env, list []client, d time.Duration) (map[string]float64, error) {
	var (
		grants   = make([]float64, len(list))
		handOffs = make([][]float64, len(list))
		inside   atomic.Int32
		last     atomic.Int64 // when the last holder called release
		lastWho  atomic.Int64
		begin    = time.Now()
		faults   = make([]error, len(list))
	)
	together(len(list), func(i int) {
		for time.Since(begin) < d {
			release, err := list[i](e.ctx, "contended")
			if err != nil {
				faults[i] = err
				return
			}
			if at, who := last.Load(), lastWho.Load(); at > 0 && who != int64(i) {
				handOffs[i] = append(handOffs[i], micros(time.Since(begin)-time.Duration(at)))
			}
			if inside.Add(1) != 1 {
				faults[i] = errors.New("two are inside at once")
			}
			inside.Add(-1)
			grants[i]++
			lastWho.Store(int64(i))
			last.Store(int64(time.Since(begin)))
			if err := release(); err != nil {
				faults[i] = err
				return
			}
		}
	})
	seconds := time.Since(begin).Seconds()
	sum, squares := 0.0, 0.0
	for _, g := range grants {
		sum += g
		squares += g * g
	}
	seen := map[string]float64{figGrants: sum / seconds}
	if sum > 0 {
		seen[figFairness] = sum * sum / (squares * float64(len(grants)))
	}
	if all := slices.Concat(handOffs...); len(all) > 0 {
		seen[figHandOff] = median(all)
	}
	return seen, errors.Join(faults...)
}

// many lets goroutines lock names drawn at random.
func many(e *env, list []client, d time.Duration) (map[string]float64, error) {
	var (
		count  atomic.Int64
		begin  = time.Now()
		faults = make([]error, manyGoroutines)
	)
	together(manyGoroutines, func(i int) {
		r := rand.New(rand.NewPCG(seed, uint64(i)))
		for time.Since(begin) < d {
			release, err := list[i%len(list)](e.ctx, fmt.Sprintf("name/%d", r.IntN(manyNames)))
			if err == nil {
				err = release()
			}
			if err != nil {
				faults[i] = err
				return
			}
			count.Add(1)
		}
	})
	return map[string]float64{figMany: float64(count.Load()) / time.Since(begin).Seconds()}, errors.Join(faults...)
}

// load is many among members in one process. It measures how evenly the messages that
// they send and receive are spread.
func load(algorithm string) func(e *env) (func(d time.Duration) (map[string]float64, error), error) {
	return func(e *env) (func(d time.Duration) (map[string]float64, error), error) {
		_, nodes, err := openGroup(e, part{Algorithm: algorithm}, 0, manyClients)
		if err != nil {
			return nil, err
		}
		counts := make([]uint64, len(nodes))
		return func(d time.Duration) (map[string]float64, error) {
			before := slices.Clone(counts)
			_, err := many(e, clientsOf(nodes), d)
			busiest, all := uint64(0), uint64(0)
			for i, n := range nodes {
				st := n.Status()
				counts[i] = 0
				for k := range st.Sent {
					counts[i] += st.Sent[k] + st.Received[k]
				}
				busiest, all = max(busiest, counts[i]-before[i]), all+counts[i]-before[i]
			}
			return map[string]float64{figLoad: float64(busiest) * float64(len(nodes)) / float64(all)}, err
		}, nil
	}
}

func together(n int, f func(i int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { f(i) })
	}
	all.Wait()
}

func median(list []float64) float64 {
	if len(list) == 0 {
		return 0
	}
	list = slices.Sorted(slices.Values(list))
	return (list[(len(list)-1)/2] + list[len(list)/2]) / 2
}

// results are the figures of each system, a value for each round.
type results map[string]map[string][]float64 // by figure, then system

// measure runs the cells in rounds. It returns the systems without a server or a linked
// client as absent.
func measure(ctx context.Context, e *env, list []cell, rounds int, d time.Duration, progress func(string)) (results, []string, error) {
	var (
		seen   = make(results)
		absent []string
		runs   []func(time.Duration) (map[string]float64, error)
		names  []string
	)
	for _, c := range list {
		run, err := c.open(e)
		switch {
		case errors.Is(err, errAbsent):
			if !slices.Contains(absent, c.system) {
				absent = append(absent, c.system)
			}
			continue
		case err != nil:
			return nil, nil, fmt.Errorf("%s: %w", c.system, err)
		}
		runs, names = append(runs, run), append(names, c.system)
	}
	for round := range rounds {
		progress(fmt.Sprintf("round %d of %d", round+1, rounds))
		for i, run := range runs {
			if err := ctx.Err(); err != nil {
				return nil, nil, err
			}
			figures, err := run(d)
			if err != nil {
				return nil, nil, fmt.Errorf("%s: %w", names[i], err)
			}
			for figure, value := range figures {
				if seen[figure] == nil {
					seen[figure] = make(map[string][]float64)
				}
				seen[figure][names[i]] = append(seen[figure][names[i]], value)
			}
		}
	}
	return seen, absent, nil
}
