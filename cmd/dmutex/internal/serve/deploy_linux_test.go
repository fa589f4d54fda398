package serve

import (
	"bytes"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool/tooltest"
	"github.com/dmutex/dmutex/internal/kit/kubetest"
)

// An image is a directory with the files of a container image, and nothing else.
type image struct {
	root, entrypoint string
	user             int
	alone            bool // the entrypoint sees only these files, and not those of this machine
}

// build makes the image that docs/deploy/container/Dockerfile describes. The command in that file takes
// a minute of CPU time with an empty cache. It runs only with DMUTEX_LONG=1, which .ci/run sets.
func build(t *testing.T) (i image) {
	text, err := os.ReadFile("../../../../docs/deploy/container/Dockerfile")
	require.NoError(t, err)
	var instructions, args []string
	for _, line := range regexp.MustCompile(`(?m)^([^#\s]\S*) *(.*)$`).FindAllStringSubmatch(string(text), -1) {
		instructions, args = append(instructions, line[1]), append(args, line[2])
	}
	require.Equal(t, []string{"FROM", "ARG", "WORKDIR", "COPY", "RUN", "FROM", "COPY", "COPY", "USER", "ENTRYPOINT", "CMD"}, instructions)
	gomod, err := os.ReadFile("../../../../go.mod")
	require.NoError(t, err)
	require.Contains(t, string(gomod), "\ngo "+strings.TrimSuffix(strings.TrimPrefix(args[0], "--platform=$BUILDPLATFORM golang:"), " AS build"))
	require.Equal(t, ". .", args[3])
	require.Equal(t, "scratch", args[5])
	var from, to string
	_, err = fmt.Sscanf(args[6], "--from=build %s %s", &from, &to)
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(args[4], " "+from+" "))
	var entrypoint, command []string
	require.NoError(t, json.Unmarshal([]byte(args[9]), &entrypoint))
	require.NoError(t, json.Unmarshal([]byte(args[10]), &command))
	require.Equal(t, []string{to}, entrypoint)
	_, err = fmt.Sscanf(args[8], "%d:%d", &i.user, &i.user)
	require.NoError(t, err)

	i.root, i.entrypoint = t.TempDir(), to
	if os.Getenv("DMUTEX_LONG") == "" {
		i.entrypoint = os.Args[0] // this binary
		return i
	}
	for dir := i.root; dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) { // for the user of the image
		require.NoError(t, os.Chmod(dir, 0o755))
	}
	run := exec.Command("sh", "-ec", strings.Replace(args[4], " "+from+" ", " "+filepath.Join(i.root, to)+" ", 1))
	run.Dir = "../../../.."
	out, err := run.CombinedOutput()
	require.NoError(t, err, "%s", out)
	file, err := elf.Open(filepath.Join(i.root, to))
	require.NoError(t, err)
	defer file.Close()
	for _, p := range file.Progs {
		require.NotEqual(t, elf.PT_INTERP, p.Type, "it needs libraries")
	}
	i.alone = true
	if _, cannot := errors.AsType[*fs.PathError](i.command(command...).Run()); cannot {
		t.Log("not in a root directory of its own: that needs root or user namespaces")
		i.entrypoint, i.alone = filepath.Join(i.root, to), false
	}
	require.NoError(t, i.command(command...).Run())
	return i
}

// command returns a command of the tool in the image, as the image's user and with no environment.
func (i image) command(args ...string) *exec.Cmd {
	cmd := exec.Command(i.entrypoint, args...)
	cmd.Env = []string{}
	if !i.alone {
		return cmd
	}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: i.root, Pdeathsig: syscall.SIGKILL}
	if os.Getuid() == 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(i.user), Gid: uint32(i.user)}
		return cmd
	}
	cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER // in it any user may change the root
	cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: i.user, HostID: os.Getuid(), Size: 1}}
	cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: i.user, HostID: os.Getgid(), Size: 1}}
	return cmd
}

// A deployment is how a file of deploy starts dmutex serve.
type deployment struct {
	args   []string
	env    map[string]string
	stop   time.Duration // from SIGTERM to SIGKILL
	probes []string
}

type probe struct {
	HTTPGet struct{ Path string } `yaml:"httpGet"`
}

// manifest reads the member of docs/deploy/kubernetes/serve.yaml. A test in internal/kit/repotest checks
// the rest of the file.
func manifest(t *testing.T) deployment {
	text, err := os.ReadFile("../../../../docs/deploy/kubernetes/serve.yaml")
	require.NoError(t, err)
	var set struct {
		Spec struct {
			Template struct {
				Spec struct {
					TerminationGracePeriodSeconds int `yaml:"terminationGracePeriodSeconds"`
					Containers                    []struct {
						Args []string
						Env  []struct {
							Name, Value string
							ValueFrom   any `yaml:"valueFrom"`
						}
						Ports []struct {
							ContainerPort int `yaml:"containerPort"`
						}
						ReadinessProbe probe `yaml:"readinessProbe"`
						LivenessProbe  probe `yaml:"livenessProbe"`
					}
				}
			}
		}
	}
	parts := bytes.Split(text, []byte("\n---\n"))
	require.NoError(t, yaml.Unmarshal(parts[1], &set))
	pod := set.Spec.Template.Spec
	c := pod.Containers[0]
	d := deployment{
		args: c.Args, env: make(map[string]string),
		stop:   time.Duration(pod.TerminationGracePeriodSeconds) * time.Second,
		probes: []string{c.ReadinessProbe.HTTPGet.Path, c.LivenessProbe.HTTPGet.Path},
	}
	for _, v := range c.Env {
		d.env[v.Name] = v.Value
		if v.ValueFrom != nil {
			d.env[v.Name] = "pod"
		}
	}
	require.Equal(t, fmt.Sprint(":", c.Ports[0].ContainerPort), d.env["DMUTEX_LISTEN"])
	require.Equal(t, fmt.Sprint(":", c.Ports[1].ContainerPort), d.env["DMUTEX_HTTP"])
	require.Equal(t, fmt.Sprint(":", c.Ports[2].ContainerPort), d.env["DMUTEX_MEET"])
	delete(d.env, "POD_NAMESPACE")
	d.env["DMUTEX_MEET"], d.env["DMUTEX_ADVERTISE"] = "127.0.0.1:0", ""
	return d
}

// unit reads docs/deploy/systemd/dmutex-serve.service.
func unit(t *testing.T) deployment {
	text, err := os.ReadFile("../../../../docs/deploy/systemd/dmutex-serve.service")
	require.NoError(t, err)
	d := deployment{env: make(map[string]string)}
	for _, match := range regexp.MustCompile(`(?m)^Environment=(\w+)=(.*)$`).FindAllStringSubmatch(string(text), -1) {
		d.env[match[1]] = match[2]
	}
	line := regexp.MustCompile(`(?m)^ExecStart=/usr/local/bin/dmutex (.*)$`).FindStringSubmatch(string(text))
	require.NotNil(t, line)
	d.args = strings.Fields(line[1])
	d.stop, err = time.ParseDuration(regexp.MustCompile(`(?m)^TimeoutStopSec=(.*)$`).FindStringSubmatch(string(text))[1])
	require.NoError(t, err)
	return d
}

// One member starts as the Kubernetes manifest says, and one of another group as the systemd unit says. Both
// have only the file of the container image and their certificate. They serve a dmutex run of
// that image.
func TestDeploy(t *testing.T) {
	i := build(t)
	url, cluster := startNATS(t, server.Options{}).ClientURL(), kubetest.New(t)
	flags := make(map[string]string) // the defaults, by variable
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Cmd]()) {
		flags[f.Tag.Get("env")] = f.Tag.Get("default")
	}
	grace, err := time.ParseDuration(flags["DMUTEX_GRACE"])
	require.NoError(t, err)

	session, err := time.ParseDuration(flags["DMUTEX_LEASE"])
	require.NoError(t, err)
	require.Greater(t, grace, session, "what clients hold would be lost at a restart")

	var members []*process
	ours := certificate(t)
	d := manifest(t)
	for _, d := range []deployment{d, unit(t)} {
		require.Equal(t, []string{"serve"}, d.args)
		require.Greater(t, d.stop, grace)
		for name := range d.env {
			require.Contains(t, flags, name, "dmutex serve has no such flag")
		}
		for name, file := range map[string]string{"DMUTEX_CERT": ours.Cert, "DMUTEX_KEY": ours.Key, "DMUTEX_AUTHORITY": ours.Authority} {
			pem, err := os.ReadFile(file)
			require.NoError(t, err)
			file = filepath.Join(i.root, d.env[name])
			require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
			require.NoError(t, os.WriteFile(file, pem, 0o644))
			if !i.alone {
				d.env[name] = file
			}
		}
		member := i.command(d.args...)
		d.env["DMUTEX_GROUP"] = strings.NewReplacer("nats://nats.example.com:4222", url,
			"kube://$(POD_NAMESPACE)/dmutex", "kube://locks/dmutex?server="+cluster.URL).Replace(d.env["DMUTEX_GROUP"])
		d.env["DMUTEX_LISTEN"], d.env["DMUTEX_HTTP"], d.env["DMUTEX_LEASE"] = "127.0.0.1:0", "127.0.0.1:0", "1s"
		for name, value := range d.env {
			if value == "" {
				continue
			}
			member.Env = append(member.Env, name+"="+value)
		}
		members = append(members, start(t, member))
	}
	require.NotNil(t, cluster.Lease("dmutex"))
	for _, m := range members {
		require.NoError(t, tooltest.Acquire(t, dial(t, ours, m).Mutex("x")).Release())
	}
	if i.alone {
		run := i.command("run", "--at="+members[0].clients, "--cert="+d.env["DMUTEX_CERT"], "--key="+d.env["DMUTEX_KEY"], "--authority="+d.env["DMUTEX_AUTHORITY"], "--lock=x", "--", i.entrypoint, "--version")
		out, err := run.CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Regexp(t, `^dmutex .*go1\.`, string(out))
	}
	for _, m := range members {
		m.shows(d.probes...)
	}
	for _, m := range members {
		require.NoError(t, m.cmd.Process.Signal(syscall.SIGTERM))
		require.NoError(t, m.cmd.Wait())
	}
}
