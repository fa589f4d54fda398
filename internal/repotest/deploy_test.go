package repotest

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/dmutex/dmutex/node"
)

const (
	closing = 10 * time.Second // the deadline of Close in the program of docs/operating.md
	lease   = 10 * time.Second // Config.Lease if it is not given
)

// The pages show files of deploy as they are, and link to every file there.
func TestDeployFilesAreShown(t *testing.T) {
	shown := regexp.MustCompile("(?ms)^\\[(deploy/[^]]+)\\]\\([^)]+\\):\n\n```\n(.*?)^```$")
	all := ""
	for page, text := range pages(t) {
		all += text
		for _, match := range shown.FindAllStringSubmatch(text, -1) {
			file, err := os.ReadFile(match[1])
			require.NoError(t, err)
			require.Equal(t, string(file), match[2], "%s does not show %s as it is", page, match[1])
		}
	}
	require.Len(t, shown.FindAllString(all, -1), 4)
	require.NoError(t, filepath.WalkDir("deploy", func(file string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			require.Contains(t, all, "(../"+filepath.ToSlash(file)+")")
		}
		return err
	}))
}

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
	Spec       struct {
		// Deployment and StatefulSet
		Replicas            int
		ServiceName         string `yaml:"serviceName"`
		PodManagementPolicy string `yaml:"podManagementPolicy"`
		Template            struct {
			Metadata metadata
			Spec     struct {
				TerminationGracePeriodSeconds int `yaml:"terminationGracePeriodSeconds"`
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
					ReadinessProbe  probe `yaml:"readinessProbe"`
					LivenessProbe   probe `yaml:"livenessProbe"`
					SecurityContext struct {
						RunAsNonRoot             bool `yaml:"runAsNonRoot"`
						ReadOnlyRootFilesystem   bool `yaml:"readOnlyRootFilesystem"`
						AllowPrivilegeEscalation bool `yaml:"allowPrivilegeEscalation"`
						Capabilities             struct{ Drop []string }
					} `yaml:"securityContext"`
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
		// PodDisruptionBudget
		MaxUnavailable int `yaml:"maxUnavailable"`
		// NetworkPolicy
		PodSelector labels   `yaml:"podSelector"`
		PolicyTypes []string `yaml:"policyTypes"`
		Ingress     []struct {
			From []struct {
				PodSelector labels `yaml:"podSelector"`
			}
			Ports []struct {
				Port, Protocol string
			}
		}
	}
}

type metadata struct {
	Name   string
	Labels map[string]string
}

type labels struct {
	MatchLabels map[string]string `yaml:"matchLabels"`
}

// manifests reads files. Together they have one manifest of each kind, all with the same name.
func manifests(t *testing.T, name string, files ...string) map[string]manifest {
	kinds := make(map[string]manifest)
	for _, file := range files {
		text, err := os.ReadFile(filepath.Join("deploy", "kubernetes", file))
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
		}
	}
	return kinds
}

// The members of a service of locks are pods that only their clients can reach. The tests of
// dmutex serve check how they are started.
func TestKubernetesServe(t *testing.T) {
	kinds := manifests(t, "dmutex", "serve.yaml")
	require.Len(t, kinds, 4)
	app := map[string]string{"app": "dmutex"}
	match := map[string]any{"matchLabels": map[string]any{"app": "dmutex"}}

	set := kinds["apps/v1 StatefulSet"].Spec
	require.Equal(t, match, set.Selector)
	require.Equal(t, "Parallel", set.PodManagementPolicy, "each waits for a lease")
	require.Equal(t, app, set.Template.Metadata.Labels)
	pod := set.Template.Spec
	require.Equal(t, app, pod.TopologySpreadConstraints[0].LabelSelector.MatchLabels)
	require.Len(t, pod.Containers, 1)
	c := pod.Containers[0]
	require.Equal(t, "clients", c.Ports[0].Name)
	require.Equal(t, "http", c.Ports[1].Name)
	require.Equal(t, "http", c.ReadinessProbe.HTTPGet.Port)
	require.Equal(t, "http", c.LivenessProbe.HTTPGet.Port)
	require.Equal(t, pod.Volumes[0].Name, c.VolumeMounts[0].Name)

	service := kinds["v1 Service"]
	require.Equal(t, service.Metadata.Name, set.ServiceName)
	require.Equal(t, "None", service.Spec.ClusterIP, "a client has its session with one member")
	require.Equal(t, map[string]any{"app": "dmutex"}, service.Spec.Selector)
	require.Equal(t, c.Ports[0].ContainerPort, service.Spec.Ports[0].Port)

	require.Equal(t, match, kinds["policy/v1 PodDisruptionBudget"].Spec.Selector)
	require.Equal(t, 1, kinds["policy/v1 PodDisruptionBudget"].Spec.MaxUnavailable)
	policy := kinds["networking.k8s.io/v1 NetworkPolicy"].Spec
	require.Equal(t, app, policy.PodSelector.MatchLabels)
	require.Equal(t, []string{"Ingress"}, policy.PolicyTypes)
	require.Len(t, policy.Ingress, 1)
	require.Equal(t, "clients", policy.Ingress[0].Ports[0].Port)
	require.NotEmpty(t, policy.Ingress[0].From[0].PodSelector.MatchLabels)
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

// A unit restarts its process, and leaves Close enough time. If systemd is installed, it
// verifies the unit.
func TestSystemd(t *testing.T) {
	files, err := filepath.Glob("deploy/systemd/*.service")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		unit := make(map[string]string)
		section := ""
		for line := range strings.SplitSeq(string(text), "\n") {
			if line == "" || line[0] == '#' {
				continue
			}
			if line[0] == '[' {
				section = line
				continue
			}
			key, value, ok := strings.Cut(line, "=")
			require.True(t, ok, "%s: %s", file, line)
			require.NotContains(t, value, "#", "%s: systemd takes a comment after a value as part of the value", file)
			unit[section+key] = value
		}
		require.Equal(t, "always", unit["[Service]Restart"], file)
		stop, err := time.ParseDuration(unit["[Service]TimeoutStopSec"])
		require.NoError(t, err, file)
		require.Greater(t, stop, closing, file)
		require.Equal(t, "multi-user.target", unit["[Install]WantedBy"], file)

		verify, err := exec.LookPath("systemd-analyze")
		if err != nil {
			continue
		}
		program, _, _ := strings.Cut(unit["[Service]ExecStart"], " ")
		self, err := os.Executable()
		require.NoError(t, err)
		copied := filepath.Join(t.TempDir(), filepath.Base(file))
		require.NoError(t, os.WriteFile(copied, bytes.ReplaceAll(text, []byte(program), []byte(self)), 0o600))
		out, err := exec.Command(verify, "verify", copied).CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Empty(t, string(out))
	}
}

// Every metric that docs/operating.md says to watch has an alert.
func TestAlertsOfPage(t *testing.T) {
	text, err := os.ReadFile("dmutexprom/alerts.yaml")
	require.NoError(t, err)
	metric := regexp.MustCompile(`\bdmutex_\w+`)
	alerts := make(map[string]bool)
	for _, expr := range regexp.MustCompile(`(?m)^ +expr: (.*)$`).FindAllString(string(text), -1) {
		for _, name := range metric.FindAllString(expr, -1) {
			alerts[name] = true
		}
	}
	watched := 0
	_, page, _ := strings.Cut(pages(t)["docs/operating.md"], "\n## What to watch\n")
	page, _, _ = strings.Cut(page, "\n## ")
	for _, row := range regexp.MustCompile(`(?m)^\| [^|]*`).FindAllString(page, -1) {
		if name := metric.FindString(row); name != "" { // other rows explain the one before
			require.True(t, alerts[name], "no alert is about %s", name)
			watched++
		}
	}
	require.Greater(t, watched, 5)
}

// Every field of a status that a page names exists.
func TestStatusOfPages(t *testing.T) {
	types := map[string]reflect.Type{
		"Status": reflect.TypeFor[node.Status](), "PeerStatus": reflect.TypeFor[node.PeerStatus](), "View": reflect.TypeFor[node.ViewStatus](),
		"MutexStatus": reflect.TypeFor[node.MutexStatus](), "Observer": reflect.TypeFor[node.Observer](),
	}
	named := 0
	for page, text := range pages(t) {
		if page == "CHANGELOG.md" { // names removed fields, too
			continue
		}
		for _, match := range regexp.MustCompile("`(\\w+)((?:\\.\\w+)+)`").FindAllStringSubmatch(text, -1) {
			of, ok := types[match[1]]
			if !ok {
				continue
			}
			for name := range strings.SplitSeq(match[2][1:], ".") {
				if of.Kind() == reflect.Pointer {
					of = of.Elem()
				}
				field, ok := of.FieldByName(name)
				require.True(t, ok, "%s: %s", page, match[0])
				of = field.Type
			}
			named++
		}
	}
	require.Greater(t, named, 10)
}
