package message

import (
	"bytes"
	"encoding/hex"
	"math"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/vmihailenco/msgpack/v5"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/kit/racetest"
	"github.com/dmutex/dmutex/lock"
)

var examples = []struct {
	name string
	lock string
	m    dmutex.Message
	wire string
}{
	{
		"first request", "abc", dmutex.Message{Kind: dmutex.Request, Attempt: 1},
		"94 01 a3616263 01 01",
	}, {
		"later request", "abc", dmutex.Message{Kind: dmutex.Request, Attempt: 7, Fence: 6},
		"95 01 a3616263 01 07 06",
	}, {
		"all numbers", "abc", dmutex.Message{Kind: dmutex.Reply, Attempt: 128, Clock: math.MaxUint64, Fence: 1 << 40},
		"96 01 a3616263 02 cc80 cf0000010000000000 cfffffffffffffffff",
	}, {
		"only a kind", "abc", dmutex.Message{Kind: dmutex.Release},
		"93 01 a3616263 04",
	}, {
		"token", "abc", dmutex.Message{Kind: dmutex.Token, Fence: 9, Numbers: []uint64{3, 0, 300}, Nodes: []dmutex.NodeID{2, 5}},
		"98 01 a3616263 08 00 09 00 930300cd012c 920205",
	}, {
		"token without a queue", "abc", dmutex.Message{Kind: dmutex.Token, Fence: 9, Numbers: []uint64{0}},
		"97 01 a3616263 08 00 09 00 9100",
	}, {
		"queue without numbers", "abc", dmutex.Message{Kind: dmutex.Token, Nodes: []dmutex.NodeID{1}},
		"98 01 a3616263 08 00 00 00 90 9101",
	}, {
		"name of any bytes", "\xff\x00", dmutex.Message{Kind: dmutex.Yield, Attempt: 1},
		"94 01 a2ff00 07 01",
	},
}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	require.NoError(t, err)
	return b
}

func TestWire(t *testing.T) {
	var d Decoder
	for _, c := range examples {
		t.Run(c.name, func(t *testing.T) {
			require.Equal(t, unhex(t, c.wire), Append(nil, c.lock, c.m))
			lock, m, err := d.Decode(unhex(t, c.wire))
			require.NoError(t, err)
			require.Equal(t, c.lock, string(lock))
			require.Equal(t, c.m, m)
		})
	}
}

// TestRequestIsSmall checks the promise of the format: a request takes its lock's name
// and at most 7 bytes in the first 127 entries.
func TestRequestIsSmall(t *testing.T) {
	b := Append(nil, "orders", dmutex.Message{Kind: dmutex.Request, From: 1, To: 2, Attempt: 100, Fence: 99, Clock: 100})
	require.LessOrEqual(t, len(b), len("orders")+7)
}

func TestRefusedMessages(t *testing.T) {
	long := strings.Repeat("61", lock.MaxName+1)
	for _, c := range []struct {
		name string
		wire string
		want string
	}{
		{"nothing", "", "ends too early"},
		{"no array", "01", "decoding array length"},
		{"empty array", "90", "ends too early"},
		{"two fields", "92 01 a161", "ends too early"},
		{"two fields and a third", "92 01 a161 01", "one form"},
		{"too many fields", "99 01 a161 01 01 01 01 9101 9101 00", "beyond its bound"},
		{"another version", "93 02 a161 01", "version"},
		{"no name", "93 01 a0 01", "a name is empty"},
		{"long name", "93 01 da0100" + long + "01", "beyond its bound"},
		{"kind 0", "93 01 a161 00", "kind"},
		{"kind to come", "93 01 a161 0a", "beyond its bound"},
		{"kind beyond a byte", "93 01 a161 cd0101", "beyond its bound"},
		{"zero attempt", "94 01 a161 01 00", "one form"},
		{"zero fence", "95 01 a161 01 01 00", "one form"},
		{"zero clock", "96 01 a161 01 01 01 00", "one form"},
		{"empty numbers", "97 01 a161 01 01 01 01 90", "one form"},
		{"empty nodes", "98 01 a161 01 01 01 01 9101 90", "one form"},
		{"long list", "97 01 a161 08 00 00 00 dc1001" + strings.Repeat("01", maxList+1), "beyond its bound"},
		{"list longer than the message", "97 01 a161 08 00 00 00 dc0fff 01", "too early"},
		{"long form", "93 01 a161 cc01", "one form"},
		{"something after it", "93 01 a161 01 00", "one form"},
		{"signed number", "94 01 a161 01 d001", "one form"},
		{"no number", "94 01 a161 01 c0", "one form"},
		{"name of bytes", "93 01 c40161 01", "one form"},
		{"no name at all", "93 01 c0 01", "a name is empty"},
		{"longest name", "93 01 dbffffffff 01", " is "},
		{"longest list", "97 01 a161 08 00 00 00 ddffffffff 01", "beyond its bound"},
	} {
		t.Run(c.name, func(t *testing.T) {
			lock, m, err := new(Decoder).Decode(unhex(t, c.wire))
			require.ErrorIs(t, err, dmutex.ErrPeer)
			require.ErrorContains(t, err, c.want)
			require.Nil(t, lock)
			require.Zero(t, m)
		})
	}
}

// twin reads a message as package msgpack does, by reflection. The bytes must be
// known to be harmless.
func twin(t testing.TB, b []byte) (lock string, m dmutex.Message) {
	t.Helper()
	var fields []any
	d := msgpack.NewDecoder(bytes.NewReader(b))
	d.UseLooseInterfaceDecoding(true)
	require.NoError(t, d.Decode(&fields))
	number := func(v any) uint64 {
		switch v := v.(type) {
		case int64:
			return uint64(v)
		case uint64:
			return v
		}
		t.Fatalf("%T is not an integer", v)
		return 0
	}
	for i, v := range fields {
		switch i {
		case 0:
			require.EqualValues(t, version, number(v))
		case 1:
			lock = v.(string)
		case 2:
			m.Kind = dmutex.Kind(number(v))
		case 3:
			m.Attempt = number(v)
		case 4:
			m.Fence = number(v)
		case 5:
			m.Clock = number(v)
		case 6:
			for _, v := range v.([]any) {
				m.Numbers = append(m.Numbers, number(v))
			}
		case 7:
			for _, v := range v.([]any) {
				m.Nodes = append(m.Nodes, dmutex.NodeID(number(v)))
			}
		}
	}
	return lock, m
}

// anyMessage draws a message, and any field of it may be zero.
func anyMessage(random *rand.Rand) (named string, m dmutex.Message) {
	number := func() uint64 {
		if random.IntN(3) == 0 {
			return 0
		}
		return random.Uint64() >> random.IntN(64)
	}
	name := make([]byte, 1+random.IntN(lock.MaxName)>>random.IntN(8))
	for i := range name {
		name[i] = byte(random.Uint32())
	}
	m = dmutex.Message{
		Kind:    dmutex.Kind(1 + random.IntN(dmutex.Kinds-1)),
		Attempt: number(),
		Clock:   number(),
		Fence:   number(),
	}
	for range random.IntN(40) * random.IntN(2) {
		m.Numbers = append(m.Numbers, number())
	}
	for range random.IntN(40) * random.IntN(2) {
		m.Nodes = append(m.Nodes, dmutex.NodeID(number()))
	}
	return string(name), m
}

func TestAgainstTheTwin(t *testing.T) {
	const seed = 7
	random := rand.New(rand.NewPCG(seed, seed))
	var d Decoder
	var b []byte
	for range 20_000 {
		lock, m := anyMessage(random)
		b = Append(b[:0], lock, m)

		twinLock, twinMessage := twin(t, b)
		require.Equal(t, lock, twinLock)
		require.Equal(t, m, twinMessage)

		gotLock, got, err := d.Decode(b)
		require.NoError(t, err)
		require.Equal(t, lock, string(gotLock))
		require.Equal(t, m, got)
	}
}

// TestBorrowedLists checks that the lists of a message have no room to grow into the
// memory of the Decoder.
func TestBorrowedLists(t *testing.T) {
	var d Decoder
	long := Append(nil, "a", dmutex.Message{Kind: dmutex.Token, Numbers: []uint64{1, 2, 3}})
	short := Append(nil, "a", dmutex.Message{Kind: dmutex.Token, Numbers: []uint64{4}})
	_, _, err := d.Decode(long)
	require.NoError(t, err)
	_, m, err := d.Decode(short)
	require.NoError(t, err)
	require.Equal(t, 1, cap(m.Numbers))
}

// hostile are short messages that announce enormous lists.
var hostile = []string{
	"dd7fffffff",
	"98 01 a161 08 00 00 00 dd7fffffff",
	"97 01 a161 08 00 00 00 dc1000",
	"93 01 dbffffffff",
	"c67fffffff",
}

func TestHostileMessagesCostLittle(t *testing.T) {
	for _, wire := range hostile {
		b := unhex(t, wire)
		var d Decoder
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range 1000 {
			if _, _, err := d.Decode(b); err == nil {
				t.Fatal("accepted", wire)
			}
		}
		runtime.ReadMemStats(&after)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1000*512), wire) // for the errors
	}
}

func TestNoAllocations(t *testing.T) {
	if racetest.On {
		t.Skip("the race detector lets sync.Pool forget at random")
	}
	var d Decoder
	b := make([]byte, 0, 256)
	for _, c := range examples {
		require.Zero(t, testing.AllocsPerRun(100, func() {
			b = Append(b[:0], c.lock, c.m)
			if _, _, err := d.Decode(b); err != nil {
				panic(err)
			}
		}), c.name)
	}
}

// FuzzDecode checks that no bytes make Decode panic, and that Append and the twin
// agree with Decode on every message.
func FuzzDecode(f *testing.F) {
	for _, c := range examples {
		f.Add(unhex(f, c.wire))
	}
	for _, wire := range hostile {
		f.Add(unhex(f, wire))
	}
	var d Decoder
	f.Fuzz(func(t *testing.T, b []byte) {
		lock, m, err := d.Decode(b)
		if err != nil {
			require.ErrorIs(t, err, dmutex.ErrPeer)
			return
		}
		require.Equal(t, b, Append(nil, string(lock), m))
		twinLock, twinMessage := twin(t, b)
		require.Equal(t, twinLock, string(lock))
		require.Equal(t, twinMessage, m)
	})
}

func BenchmarkMessage(b *testing.B) {
	for _, c := range examples[1:5:5] {
		b.Run(strings.ReplaceAll(c.name, " ", "-"), func(b *testing.B) {
			var d Decoder
			var wire []byte
			b.ReportAllocs()
			for b.Loop() {
				wire = Append(wire[:0], c.lock, c.m)
				if _, _, err := d.Decode(wire); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(len(wire)), "bytes")
		})
	}
}
