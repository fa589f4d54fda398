package nodehttp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/node/nodehttp"
	"github.com/dmutex/dmutex/transport/memlink"
)

// A program asks which locks are held at a node.
func ExampleHandler() {
	ctx := context.Background()
	network, err := memlink.New(memlink.Config{})
	check(err)
	n, err := node.OpenStrict(ctx, 1, []dmutex.NodeID{1}, network.Link(1), node.Config{})
	check(err)
	defer n.Close(ctx)
	held, err := n.Mutex("invoices/42").Acquire(ctx)
	check(err)
	defer held.Release()

	mux := http.NewServeMux()
	mux.Handle("/debug/dmutex", nodehttp.Handler(n))
	server := httptest.NewServer(mux)
	defer server.Close()

	response, err := http.Get(server.URL + "/debug/dmutex?format=json&prefix=invoices/")
	check(err)
	defer response.Body.Close()
	var status struct {
		Locks []struct{ Name, Phase string }
	}
	check(json.NewDecoder(response.Body).Decode(&status))
	for _, l := range status.Locks {
		fmt.Println(l.Name, "is", l.Phase)
	}
	// Output: invoices/42 is held
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
