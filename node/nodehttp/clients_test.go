package nodehttp_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/client"
	"github.com/dmutex/dmutex/internal/kit/servetest"
	"github.com/dmutex/dmutex/node"
)

// The page and the JSON name the clients, what each holds and waits for, and count what was refused.
func TestClients(t *testing.T) {
	servetest.Run(t, func(t *testing.T, n *node.Node, _ *client.Client) {
		body := get(n, "/", nil).Body.String()
		require.Contains(t, body, `<th scope="row" class="name">job-&lt;1&gt;</th><td>pipe</td><td class="name" data-l="holds">l</td><td class="name" data-l="waits for">busy</td><td class="n" data-l="session ends in">16s</td>`)
		require.Contains(t, body, `held</td><td data-l="holder">client <span class="name">job-&lt;1&gt;</span></td>`)
		require.Contains(t, body, "Refused from clients 1")
		require.Contains(t, body, `<td data-l="waiting here">1: <span class="name">job-&lt;1&gt;</span></td>`)
		require.Contains(t, body, "the locks that it may hold wait, for at most 24s; the others go on once it is excluded.")
		body = get(n, "/?format=json", nil).Body.String()
		var v struct {
			Clients []struct {
				Name, Address    string
				Holds, WaitsFor  []string
				RemainingSeconds float64
			}
			ClientsRefused int
		}
		require.NoError(t, json.Unmarshal([]byte(body), &v))
		require.Len(t, v.Clients, 1)
		require.Equal(t, "job-<1>", v.Clients[0].Name)
		require.Equal(t, []string{"l"}, v.Clients[0].Holds)
		require.Equal(t, []string{"busy"}, v.Clients[0].WaitsFor)
		require.InDelta(t, 16, v.Clients[0].RemainingSeconds, 1)
		require.Equal(t, 1, v.ClientsRefused)
	})
}
