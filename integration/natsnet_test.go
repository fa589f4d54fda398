package integration

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/internal/kit/natsnet"
)

// A talk is what one client says to a server, as one step of a conversation.
type talk struct{ who, says string }

const hello = `CONNECT {"verbose":false,"protocol":1,"headers":true,"no_responders":true,"echo":true}`

var talks = map[string][]talk{
	"wildcards": {
		{"a", "SUB x.* 1"}, {"a", "SUB x.> 2"}, {"a", "SUB > 3"}, {"a", "SUB x.y 4"}, {"a", "SUB *.y.* 5"},
		{"b", "PUB x 1\r\na"}, {"b", "PUB x.y 1\r\nb"}, {"b", "PUB x.z 1\r\nc"}, {"b", "PUB x.y.z 1\r\nd"}, {"b", "PUB y 1\r\ne"}, {"a", "PUB x.y 0\r\n"},
	},
	"order and ends": {
		{"a", "SUB x 1"}, {"b", "PUB x 1\r\n1\r\nPUB x 1\r\n2\r\nPUB x r 1\r\n3"}, {"a", "UNSUB 1"}, {"b", "PUB x 1\r\n4"}, {"a", "UNSUB 9"},
	},
	"a queue group": {
		{"a", "SUB x g 1"}, {"b", "SUB x 2"}, {"c", "PUB x 1\r\n1\r\nPUB x 1\r\n2"}, {"b", "SUB x h 3"}, {"c", "PUB x 1\r\n3"}, {"b", "SUB * h2 4"}, {"c", "PUB x 1\r\n4"},
	},
	"headers": {
		{"a", "SUB x 1"}, {"b", "HPUB x 12 14\r\nNATS/1.0\r\n\r\nhi"}, {"b", "HPUB x r.s 12 12\r\nNATS/1.0\r\n\r\n"},
	},
	"nobody": {
		{"a", "PUB x r.1 1\r\n1"}, {"a", "SUB r.* 1"}, {"a", "PUB x r.1 1\r\n2"}, {"b", "PUB x r.1 1\r\n3"}, {"a", "PUB x 1\r\n4"},
		{"b", "SUB x 1"}, {"a", "PUB x r.1 1\r\n5"}, {"b", "UNSUB 1"}, {"a", "PUB x r.1 1\r\n6"}, {"c", "SUB r.> g 1"}, {"c", "PUB x r.2 1\r\n7"},
	},
	"no echo": {
		{"a", `CONNECT {"verbose":false,"headers":true,"no_responders":true,"echo":false}`}, {"a", "SUB > 1"}, {"a", "PUB x r 1\r\n1"}, {"b", "PUB x 1\r\n2"},
	},
	"no such word": {{"a", "SUB x 1"}, {"a", "WHAT"}, {"b", "PUB x 1\r\n1"}},
	"too much":     {{"a", fmt.Sprint("PUB x ", 1<<20+1)}},
}

// held holds a talk, and returns what each has heard after each step.
func held(t *testing.T, dial func() (net.Conn, error), steps []talk) (all []string) {
	conns, from, order := make(map[string]net.Conn), make(map[string]*bufio.Reader), []string{"a", "b", "c"}
	hear := func(who string) (lines []string) {
		fmt.Fprint(conns[who], "PING\r\n")
		for {
			line, err := from[who].ReadString('\n')
			word, _, _ := strings.Cut(line, " ")
			switch {
			case err != nil:
				return append(lines, "the end")
			case line == "PONG\r\n": // a server orders the messages of one subscription only
				slices.SortStableFunc(lines, func(a, b string) int { return cmp.Compare(strings.Fields(a)[2], strings.Fields(b)[2]) })
				return lines
			case strings.HasSuffix(word, "MSG"):
				fields := strings.Fields(line)
				size, err := strconv.Atoi(fields[len(fields)-1])
				require.NoError(t, err)
				payload := make([]byte, size+2)
				_, err = io.ReadFull(from[who], payload)
				require.NoError(t, err)
				lines = append(lines, line+string(payload))
			case word != "INFO" && word != "PING\r\n":
				lines = append(lines, line)
			}
		}
	}
	for _, who := range order {
		c, err := dial()
		require.NoError(t, err)
		defer c.Close()
		conns[who], from[who] = c, bufio.NewReader(c)
		fmt.Fprint(c, hello+"\r\n")
		require.Empty(t, hear(who))
	}
	for _, step := range steps {
		fmt.Fprint(conns[step.who], step.says+"\r\n")
		others := slices.DeleteFunc(slices.Clone(order), func(who string) bool { return who == step.who })
		for _, who := range append([]string{step.who}, others...) { // what a server has answered, it has handed on
			all = append(all, fmt.Sprintf("%q: %s hears %q", step.says, who, hear(who)))
		}
	}
	return all
}

// The server in memory says what a real one says.
func TestServerInMemory(t *testing.T) {
	real := startNATS(t, server.Options{Port: -1})
	for name, steps := range talks {
		t.Run(name, func(t *testing.T) {
			want := held(t, func() (net.Conn, error) { return net.Dial("tcp", real.Addr().String()) }, steps)
			require.Equal(t, want, held(t, natsnet.New(1).Way().InProcessConn, steps))
		})
	}
}
