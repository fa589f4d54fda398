//go:build unix

package kube

import (
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/integration/servers"
	"github.com/dmutex/dmutex/store"
	"github.com/dmutex/dmutex/store/kubestore"
	"github.com/dmutex/dmutex/store/storetest"
)

func TestMain(m *testing.M) {
	_, missing := servers.KubeProgram()
	servers.Main(m, missing)
}

const manifests = "../../docs/deploy/kubernetes"

// paths are where objects of a kind are made. Those of monitor are of an operator that has its own kinds.
var paths = map[string]string{
	"Deployment":          "/apis/apps/v1/namespaces/locks/deployments",
	"NetworkPolicy":       "/apis/networking.k8s.io/v1/namespaces/locks/networkpolicies",
	"PodDisruptionBudget": "/apis/policy/v1/namespaces/locks/poddisruptionbudgets",
	"Role":                "/apis/rbac.authorization.k8s.io/v1/namespaces/locks/roles",
	"RoleBinding":         "/apis/rbac.authorization.k8s.io/v1/namespaces/locks/rolebindings",
	"Service":             "/api/v1/namespaces/locks/services",
	"ServiceAccount":      "/api/v1/namespaces/locks/serviceaccounts",
	"StatefulSet":         "/apis/apps/v1/namespaces/locks/statefulsets",
}

var kind = regexp.MustCompile(`(?m)^kind: (\w+)$`)

// apply makes the objects of a file of manifests, in the namespace "locks", but for those of kinds to leave out. It returns
// their kinds.
func apply(t *testing.T, k *servers.Kube, file string, without ...string) (kinds []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(manifests, file))
	require.NoError(t, err)
	for object := range strings.SplitSeq(string(text), "\n---\n") {
		of := kind.FindStringSubmatch(object)
		require.NotNil(t, of, object)
		if slices.Contains(without, of[1]) {
			continue
		}
		require.Contains(t, paths, of[1])
		k.Apply(paths[of[1]], []byte(object))
		kinds = append(kinds, of[1])
	}
	return kinds
}

// start starts a server with the Role of serve.yaml.
func start(t *testing.T) *servers.Kube {
	k := servers.StartKube(t, "locks")
	require.Contains(t, apply(t, k, "serve.yaml", "StatefulSet", "Service", "NetworkPolicy", "PodDisruptionBudget"), "Role")
	for range 1000 { // the server learns of the Role a moment later
		if _, err := kubestore.Open(t.Context(), config(k, k.Address), "ready"); err == nil {
			return k
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("the Role permits nothing")
	return nil
}

func open(t *testing.T, k *servers.Kube, address, name string) store.Store {
	s, err := kubestore.Open(t.Context(), config(k, address), name)
	require.NoError(t, err)
	return s
}

func config(k *servers.Kube, address string) kubestore.Config {
	return kubestore.Config{Server: "https://" + address, Client: k.Client("locks:dmutex"), Namespace: "locks"}
}

// The server takes each manifest as it is.
func TestManifests(t *testing.T) {
	for file, with := range map[string][]string{
		"serve.yaml":       nil,
		"deployment.yaml":  {"leases.yaml", "network-policy.yaml", "disruption-budget.yaml"},
		"statefulset.yaml": nil,
	} {
		t.Run(file, func(t *testing.T) {
			k := servers.StartKube(t, "locks")
			apply(t, k, file)
			for _, other := range with {
				apply(t, k, other)
			}
		})
	}
}

// The store keeps its contract with the permissions of serve.yaml, and no others.
func TestStore(t *testing.T) {
	k := start(t)
	storetest.Run(t, func(t *testing.T, group string) store.Store { return open(t, k, k.Address, group) })
	storetest.RunServer(t, k.Address,
		func(t *testing.T, address, group string) store.Store { return open(t, k, address, group) },
		func(_ *testing.T, group string) {
			k.Delete("/apis/coordination.k8s.io/v1/namespaces/locks/leases/" + group)
		})
}

// The records are registers while their server is killed and stopped, and the network is bad.
func TestRegister(t *testing.T) {
	k := start(t)
	servers.Survives(t, k, k.Address, func(through, name string) store.Store { return open(t, k, through, name) })
}

// Three members go on through an outage of the server that is longer than a lease.
func TestOutage(t *testing.T) {
	k := start(t)
	servers.Outage(t, func() store.Store { return open(t, k, k.Address, "group") }, k.Crash, k.Start)
}

// The tool serves, and takes a lock, with nothing but the server. A proxy speaks for it, as kubectl proxy does.
func TestTool(t *testing.T) {
	k := start(t)
	to := &url.URL{Scheme: "https", Host: k.Address}
	proxy := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }, Transport: k.Client("locks:dmutex").Transport,
	})
	t.Cleanup(proxy.Close)
	tool := servers.BuildTool(t, "")
	servers.ServeAt(t, tool, "kube://locks/members?server="+proxy.URL)
	out, err := exec.Command(tool, "run", "--store=kube://locks?server="+proxy.URL, "--lock=door", "--", "echo", "in").CombinedOutput()
	require.NoError(t, err, string(out))
	require.Contains(t, string(out), "in\n")
}
