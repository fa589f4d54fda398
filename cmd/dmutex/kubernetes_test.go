package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

const (
	closing = 10 * time.Second // the deadline of Close in the program of docs/operating.md
	lease   = 10 * time.Second // Config.Lease if it is not given
)

type probe struct {
	HTTPGet struct {
		Path, Port string
	} `yaml:"httpGet"`
	PeriodSeconds    int `yaml:"periodSeconds"`
	FailureThreshold int `yaml:"failureThreshold"`
}

// A manifest has the fields that our manifests of all kinds use. Any other field is refused.
type manifest struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string
	Metadata   metadata
	Rules      []rule // Role
	RoleRef    entity `yaml:"roleRef"` // RoleBinding
	Subjects   []entity
	Spec       struct {
		// Deployment and StatefulSet
		Replicas            int
		ServiceName         string `yaml:"serviceName"`
		PodManagementPolicy string `yaml:"podManagementPolicy"`
		Template            struct {
			Metadata metadata
			Spec     struct {
				ServiceAccountName            string `yaml:"serviceAccountName"`
				TerminationGracePeriodSeconds int    `yaml:"terminationGracePeriodSeconds"`
				TopologySpreadConstraints     []struct {
					MaxSkew           int    `yaml:"maxSkew"`
					TopologyKey       string `yaml:"topologyKey"`
					WhenUnsatisfiable string `yaml:"whenUnsatisfiable"`
					LabelSelector     labels `yaml:"labelSelector"`
				} `yaml:"topologySpreadConstraints"`
				Volumes []struct {
					Name   string
					Secret struct {
						SecretName string `yaml:"secretName"`
					}
				}
				Containers []struct {
					Name, Image string
					Args        []string
					Env         []struct {
						Name, Value string
						Patch       string `yaml:"$patch"`
						ValueFrom   struct {
							FieldRef struct {
								FieldPath string `yaml:"fieldPath"`
							} `yaml:"fieldRef"`
						} `yaml:"valueFrom"`
					}
					Ports []struct {
						Name          string
						ContainerPort int `yaml:"containerPort"`
					}
					ReadinessProbe  probe    `yaml:"readinessProbe"`
					LivenessProbe   probe    `yaml:"livenessProbe"`
					SecurityContext security `yaml:"securityContext"`
					Resources       struct {
						Requests, Limits quantity
					}
					VolumeMounts []struct {
						Name      string
						MountPath string `yaml:"mountPath"`
						ReadOnly  bool   `yaml:"readOnly"`
					} `yaml:"volumeMounts"`
				}
			}
		}
		// Service; a selector of its own form
		ClusterIP                string `yaml:"clusterIP"`
		PublishNotReadyAddresses bool   `yaml:"publishNotReadyAddresses"`
		Ports                    []struct {
			Name string
			Port int
		}
		Selector map[string]any
		// ServiceMonitor
		Endpoints []struct{ Port, Path string }
		// PodDisruptionBudget
		MaxUnavailable int `yaml:"maxUnavailable"`
		// NetworkPolicy
		PodSelector labels   `yaml:"podSelector"`
		PolicyTypes []string `yaml:"policyTypes"`
		Ingress     []struct {
			From []struct {
				PodSelector       labels `yaml:"podSelector"`
				NamespaceSelector labels `yaml:"namespaceSelector"`
			}
			Ports []struct {
				Port, Protocol string
			}
		}
	}
}

type security struct {
	RunAsNonRoot             bool `yaml:"runAsNonRoot"`
	ReadOnlyRootFilesystem   bool `yaml:"readOnlyRootFilesystem"`
	AllowPrivilegeEscalation bool `yaml:"allowPrivilegeEscalation"`
	Capabilities             struct{ Drop []string }
	SeccompProfile           struct{ Type string } `yaml:"seccompProfile"`
}

type rule struct {
	APIGroups        []string `yaml:"apiGroups"`
	Resources, Verbs []string
}

type entity struct {
	APIGroup   string `yaml:"apiGroup"`
	Kind, Name string
}

type quantity struct{ CPU, Memory string }

type metadata struct {
	Name   string
	Labels map[string]string
}

type labels struct {
	MatchLabels map[string]string `yaml:"matchLabels"`
}

// confined is what any container of ours may do.
var confined = security{
	RunAsNonRoot: true, ReadOnlyRootFilesystem: true,
	Capabilities: struct{ Drop []string }{[]string{"ALL"}}, SeccompProfile: struct{ Type string }{"RuntimeDefault"},
}

// manifests reads files. Together they have one manifest of each kind, all with the same name.
func manifests(t *testing.T, name string, files ...string) map[string]manifest {
	kinds := make(map[string]manifest)
	for _, file := range files {
		text, err := os.ReadFile(filepath.Join("..", "..", "docs", "deploy", "kubernetes", file))
		require.NoError(t, err)
		in := yaml.NewDecoder(bytes.NewReader(text))
		in.KnownFields(true)
		for {
			var m manifest
			err := in.Decode(&m)
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err, file)
			require.Equal(t, name, m.Metadata.Name, file)
			kind := m.APIVersion + " " + m.Kind
			require.NotContains(t, kinds, kind)
			kinds[kind] = m
			for _, c := range m.Spec.Template.Spec.Containers {
				if c.Image == "" {
					continue // a patch of one
				}
				require.Equal(t, confined, c.SecurityContext, file)
				require.Equal(t, quantity{"100m", "64Mi"}, c.Resources.Requests, file)
				require.Equal(t, quantity{"", "256Mi"}, c.Resources.Limits, "%s: a throttled member may lose its lease", file)
			}
		}
	}
	return kinds
}

// The members of a service of locks are pods that only their clients can reach. The tests of
// dmutex serve check how they are started.
func TestKubernetesServe(t *testing.T) {
	kinds := manifests(t, "dmutex", "serve.yaml", "monitor/service-monitor.yaml")
	require.Len(t, kinds, 8)
	app := map[string]string{"app": "dmutex"}
	match := map[string]any{"matchLabels": map[string]any{"app": "dmutex"}}

	set := kinds["apps/v1 StatefulSet"].Spec
	require.Equal(t, match, set.Selector)
	require.Equal(t, "Parallel", set.PodManagementPolicy, "each waits for a lease")
	require.Equal(t, app, set.Template.Metadata.Labels)
	pod := set.Template.Spec
	require.Equal(t, kinds["v1 ServiceAccount"].Metadata.Name, pod.ServiceAccountName)
	role, binding := kinds["rbac.authorization.k8s.io/v1 Role"], kinds["rbac.authorization.k8s.io/v1 RoleBinding"]
	require.Equal(t, []rule{{[]string{"coordination.k8s.io"}, []string{"leases"}, []string{"get", "create", "update"}}}, role.Rules)
	require.Equal(t, entity{"rbac.authorization.k8s.io", "Role", role.Metadata.Name}, binding.RoleRef)
	require.Equal(t, []entity{{"", "ServiceAccount", pod.ServiceAccountName}}, binding.Subjects)
	require.Equal(t, app, pod.TopologySpreadConstraints[0].LabelSelector.MatchLabels)
	require.Len(t, pod.Containers, 1)
	c := pod.Containers[0]
	require.Equal(t, "clients", c.Ports[0].Name)
	require.Equal(t, "http", c.Ports[1].Name)
	require.Equal(t, "members", c.Ports[2].Name)
	require.Equal(t, "http", c.ReadinessProbe.HTTPGet.Port)
	require.Equal(t, "http", c.LivenessProbe.HTTPGet.Port)
	require.Equal(t, "dmutex-tls", pod.Volumes[0].Secret.SecretName)
	require.Equal(t, pod.Volumes[0].Name, c.VolumeMounts[0].Name)
	require.True(t, c.VolumeMounts[0].ReadOnly)
	files := 0
	for _, v := range c.Env {
		if strings.HasPrefix(v.Value, "/") {
			require.Equal(t, c.VolumeMounts[0].MountPath, path.Dir(v.Value), v.Name)
			files++
		}
	}
	require.Equal(t, 3, files, "certificate, key and authority")

	service := kinds["v1 Service"]
	require.Equal(t, service.Metadata.Name, set.ServiceName)
	require.Equal(t, "None", service.Spec.ClusterIP, "a client has its session with one member")
	require.Equal(t, map[string]any{"app": "dmutex"}, service.Spec.Selector)
	require.Equal(t, c.Ports[0].ContainerPort, service.Spec.Ports[0].Port)
	require.Equal(t, c.Ports[1].ContainerPort, service.Spec.Ports[1].Port)
	require.Equal(t, c.Ports[2].ContainerPort, service.Spec.Ports[2].Port)
	monitor := kinds["monitoring.coreos.com/v1 ServiceMonitor"].Spec
	require.Equal(t, map[string]any{"matchLabels": map[string]any{"app": service.Metadata.Labels["app"]}}, monitor.Selector)
	require.Equal(t, service.Spec.Ports[1].Name, monitor.Endpoints[0].Port)

	require.Equal(t, match, kinds["policy/v1 PodDisruptionBudget"].Spec.Selector)
	require.Equal(t, 1, kinds["policy/v1 PodDisruptionBudget"].Spec.MaxUnavailable)
	policy := kinds["networking.k8s.io/v1 NetworkPolicy"].Spec
	require.Equal(t, app, policy.PodSelector.MatchLabels)
	require.Equal(t, []string{"Ingress"}, policy.PolicyTypes)
	require.Len(t, policy.Ingress, 3)
	require.Equal(t, "members", policy.Ingress[1].Ports[0].Port)
	require.Equal(t, app, policy.Ingress[1].From[0].PodSelector.MatchLabels)
	require.Equal(t, "http", policy.Ingress[2].Ports[0].Port)
	require.NotEmpty(t, policy.Ingress[2].From[0].NamespaceSelector.MatchLabels)
	require.Equal(t, "clients", policy.Ingress[0].Ports[0].Port)
	for _, from := range policy.Ingress[0].From { // of this namespace, and of others
		require.Equal(t, map[string]string{"locks": "dmutex"}, from.PodSelector.MatchLabels)
	}
	require.Empty(t, policy.Ingress[0].From[0].NamespaceSelector.MatchLabels)
	require.Equal(t, map[string]string{"locks": "dmutex"}, policy.Ingress[0].From[1].NamespaceSelector.MatchLabels)
}

// The names that the certificate of the members needs cover the addresses of the members for clients of
// their namespace and of others.
func TestKubernetesNames(t *testing.T) {
	text, err := os.ReadFile("../../docs/deploy/kubernetes/serve.yaml")
	require.NoError(t, err)
	_, line, _ := strings.Cut(string(text), "value: /tls/tls.crt} # for ")
	line, _, _ = strings.Cut(line, "\n")
	cert := &x509.Certificate{DNSNames: regexp.MustCompile(`\*[a-zA-Z.]+`).FindAllString(line, -1)}
	require.Len(t, cert.DNSNames, 3)
	addresses := regexp.MustCompile(`dmutex-0[a-zA-Z.]*`).FindAllString(string(text), -1)
	require.Equal(t, []string{"dmutex-0.dmutex", "dmutex-0.dmutex.NAMESPACE.svc"}, addresses)
	require.Contains(t, string(text), `{name: DMUTEX_ADVERTISE, value: "$(DMUTEX_NAME).dmutex:7000"}`, "members check it, too")
	for _, address := range append(addresses, "dmutex-0.dmutex.NAMESPACE.svc.cluster.local") {
		require.NoError(t, cert.VerifyHostname(address))
	}
	docs, err := os.ReadFile("../../docs/operating.md")
	require.NoError(t, err)
	for _, name := range cert.DNSNames {
		require.Contains(t, string(docs), "`"+name+"`")
	}
}

// The commands of the page make certificates that members and clients accept.
func TestKubernetesSecret(t *testing.T) {
	if version, err := exec.Command("openssl", "version").Output(); err != nil || !bytes.HasPrefix(version, []byte("OpenSSL 3")) {
		t.Skipf("no OpenSSL 3: %s", version)
	}
	docs, err := os.ReadFile("../../docs/operating.md")
	require.NoError(t, err)
	commands, _, _ := strings.Cut(regexp.MustCompile("(?ms)^openssl.*?^```").FindString(string(docs)), "kubectl")
	require.Equal(t, 2, strings.Count(commands, "openssl"))
	cmd := exec.Command("sh", "-ec", commands)
	cmd.Dir = t.TempDir()
	said, err := cmd.CombinedOutput()
	require.NoError(t, err, string(said))
	own, err := tls.LoadX509KeyPair(filepath.Join(cmd.Dir, "tls.crt"), filepath.Join(cmd.Dir, "tls.key"))
	require.NoError(t, err)
	authority, err := os.ReadFile(filepath.Join(cmd.Dir, "ca.crt"))
	require.NoError(t, err)
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(authority))
	for _, use := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
		_, err = own.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: "dmutex-0.dmutex", KeyUsages: []x509.ExtKeyUsage{use}})
		require.NoError(t, err)
	}
}

// Each file for Kustomize names files that are there, and the base is all of the lock service.
func TestKustomize(t *testing.T) {
	files, err := filepath.Glob("../../docs/deploy/kubernetes/*/kustomization.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range append(files, "../../docs/deploy/kubernetes/kustomization.yaml") {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		var k struct {
			APIVersion string `yaml:"apiVersion"`
			Kind       string
			Resources  []string
			Patches    []struct{ Path string }
		}
		in := yaml.NewDecoder(bytes.NewReader(text))
		in.KnownFields(true)
		require.NoError(t, in.Decode(&k), file)
		names := k.Resources
		for _, p := range k.Patches {
			names = append(names, p.Path)
		}
		require.NotEmpty(t, names, file)
		for _, name := range names {
			require.FileExists(t, filepath.Join(filepath.Dir(file), name))
		}
	}
}

// With NATS the members meet there, with the credentials of a user.
func TestKubernetesNATS(t *testing.T) {
	set := func(file string) manifest { return manifests(t, "dmutex", file)["apps/v1 StatefulSet"] }
	whole, added := set("serve.yaml").Spec.Template.Spec, set("nats/member.yaml").Spec.Template.Spec
	require.Equal(t, whole.Containers[0].Name, added.Containers[0].Name)
	require.NotEqual(t, whole.Volumes[0].Name, added.Volumes[0].Name)
	require.Equal(t, added.Volumes[0].Name, added.Containers[0].VolumeMounts[0].Name)
	require.True(t, added.Containers[0].VolumeMounts[0].ReadOnly)
	serve := grammar(t).Model.Leaves(false)
	i := slices.IndexFunc(serve, func(n *kong.Node) bool { return n.Name == "serve" })
	for _, env := range added.Containers[0].Env {
		require.True(t, slices.ContainsFunc(serve[i].Flags, func(f *kong.Flag) bool { return slices.Contains(f.Envs, env.Name) }), env.Name)
		switch env.Name {
		case "DMUTEX_GROUP":
			require.Regexp(t, "^nats://", env.Value)
		case "DMUTEX_CREDS":
			require.Equal(t, added.Containers[0].VolumeMounts[0].MountPath, path.Dir(env.Value))
		default:
			require.Equal(t, "delete", env.Patch, "dmutex serve refuses it beside NATS")
		}
	}
	require.Len(t, added.Containers[0].Env, 4)
}

// The manifests agree with each other and with the pages.
func TestKubernetes(t *testing.T) {
	kinds := manifests(t, "invoices", "deployment.yaml", "disruption-budget.yaml", "network-policy.yaml", "statefulset.yaml")
	require.Len(t, kinds, 5)
	app := map[string]string{"app": "invoices"}
	match := map[string]any{"matchLabels": map[string]any{"app": "invoices"}}

	locks := 0 // the port
	for _, kind := range []string{"apps/v1 Deployment", "apps/v1 StatefulSet"} {
		m := kinds[kind]
		require.Equal(t, match, m.Spec.Selector, kind)
		pod := m.Spec.Template
		require.Equal(t, app, pod.Metadata.Labels, kind)
		require.Greater(t, pod.Spec.TerminationGracePeriodSeconds, int(closing.Seconds()), kind)
		require.Len(t, pod.Spec.Containers, 1, kind)
		c := pod.Spec.Containers[0]
		require.Equal(t, "locks", c.Ports[0].Name, kind)
		require.Equal(t, "http", c.Ports[1].Name, kind)
		require.Equal(t, "/ready", c.ReadinessProbe.HTTPGet.Path, kind)
		require.Equal(t, "http", c.ReadinessProbe.HTTPGet.Port, kind)
		require.Equal(t, "/alive", c.LivenessProbe.HTTPGet.Path, kind)
		require.Equal(t, "http", c.LivenessProbe.HTTPGet.Port, kind)
		locks = c.Ports[0].ContainerPort
	}
	account := kinds["apps/v1 Deployment"].Spec.Template.Spec.ServiceAccountName
	require.NotEmpty(t, account)
	text, err := os.ReadFile("../../docs/deploy/kubernetes/leases.yaml")
	require.NoError(t, err)
	require.Contains(t, string(text), "- {kind: ServiceAccount, name: "+account+"}")
	ready := kinds["apps/v1 Deployment"].Spec.Template.Spec.Containers[0].ReadinessProbe
	require.Greater(t, time.Duration(ready.PeriodSeconds*ready.FailureThreshold)*time.Second, lease)

	service, set := kinds["v1 Service"], kinds["apps/v1 StatefulSet"]
	require.Equal(t, "None", service.Spec.ClusterIP)
	require.True(t, service.Spec.PublishNotReadyAddresses)
	require.Equal(t, map[string]any{"app": "invoices"}, service.Spec.Selector)
	require.Equal(t, locks, service.Spec.Ports[0].Port)
	require.Equal(t, service.Metadata.Name, set.Spec.ServiceName)
	require.Equal(t, "Parallel", set.Spec.PodManagementPolicy)

	budget := kinds["policy/v1 PodDisruptionBudget"]
	require.Equal(t, match, budget.Spec.Selector)
	require.Equal(t, 1, budget.Spec.MaxUnavailable)

	policy := kinds["networking.k8s.io/v1 NetworkPolicy"].Spec
	require.Equal(t, app, policy.PodSelector.MatchLabels)
	require.Equal(t, []string{"Ingress"}, policy.PolicyTypes)
	require.Len(t, policy.Ingress, 2)
	require.Equal(t, "locks", policy.Ingress[0].Ports[0].Port)
	require.Equal(t, app, policy.Ingress[0].From[0].PodSelector.MatchLabels)
	require.Equal(t, "http", policy.Ingress[1].Ports[0].Port)
	require.Empty(t, policy.Ingress[1].From)
}
