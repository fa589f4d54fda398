//go:build unix

package release

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

const (
	path    = "github.com/dmutex/dmutex"
	version = "v0.999.0"
)

// TestRelease makes a release of this tree, and serves it from a folder as a module proxy does.
// It uses the release as a stranger would: without a workspace, and without a replace.
// DMUTEX_LONG=1, which .ci/run sets, adds the nested modules, and compiles a program and the
// tool. That takes half a minute of CPU time.
func TestRelease(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	clone := snapshot(t, top(t))
	release(t, clone, version)
	proxy := t.TempDir()
	modules := publish(t, clone, proxy)
	require.Contains(t, modules, path)
	require.Contains(t, modules, path+"/cmd/dmutex")

	user := t.TempDir()
	env := []string{
		"GOWORK=off", "GOFLAGS=-modcacherw", "GOSUMDB=off", "GOBIN=" + filepath.Join(user, "bin"),
		// A separate cache, because the version is not a real one. The modules of others come
		// from the cache that this test was built from or, if it lacks them, from the machine's own
		// GOPROXY.
		"GOMODCACHE=" + filepath.Join(user, "cache"),
		"GOPROXY=file://" + filepath.ToSlash(proxy) + ",file://" + filepath.ToSlash(run(t, "", nil, "go", "env", "GOMODCACHE")) + "/cache/download," + run(t, "", nil, "go", "env", "GOPROXY"),
	}
	write(t, filepath.Join(user, "go.mod"), "module example.com/invoices\n\ngo 1.26.0\n")
	long := os.Getenv("DMUTEX_LONG") != ""
	if !long {
		modules = []string{path}
	}
	for _, m := range modules {
		run(t, user, env, "go", "get", m+"@"+version)
	}
	write(t, filepath.Join(user, "main.go"), imports("central", "node", "store/filestore", "transport/tcplink")+"\nfunc main() {}\n")
	run(t, user, env, "go", "get", ".")
	if !long {
		run(t, user, env, "go", "list", "-deps", ".")
		return
	}
	run(t, user, env, "go", "build", "-o", "invoices", ".")
	write(t, filepath.Join(user, "more.go"), imports("metrics/otel", "metrics/prom", "store/etcdstore", "store/natsstore", "store/redisstore"))
	run(t, user, env, "go", "list", "-deps", ".") // to compile it would take a minute
	require.NotContains(t, read(t, filepath.Join(user, "go.mod")), "replace")

	run(t, user, env, "go", "install", path+"/cmd/dmutex@"+version)
	require.Contains(t, run(t, user, nil, filepath.Join(user, "bin", "dmutex"), "--version"), "dmutex "+version+" ")

	homework(t, clone, env)
}

// homework is a student's module, with the program that docs/course.md begins with.
func homework(t *testing.T, clone string, env []string) {
	dir := t.TempDir()
	_, program, found := strings.Cut(read(t, filepath.Join(clone, "docs", "course.md")), "```go\n")
	require.True(t, found)
	program, _, _ = strings.Cut(program, "```\n")
	write(t, filepath.Join(dir, "main.go"), program)
	run(t, dir, env, "go", "mod", "init", "homework")
	run(t, dir, env, "go", "mod", "tidy")
	run(t, dir, env, "go", "build", ".")
	require.NotContains(t, read(t, filepath.Join(dir, "go.mod")), "replace")
	out, err := exec.Command(filepath.Join(dir, "homework"), "check", "-o", filepath.Join(dir, "run.html")).Output()
	require.Error(t, err)
	require.Contains(t, string(out), "\n# deadlock: 1 waits, no node holds the lock and no message is in flight\n")
	require.FileExists(t, filepath.Join(dir, "run.html"))
}

// release makes a release of a snapshot.
func release(t *testing.T, clone, version string) (says string) {
	says = run(t, clone, nil, filepath.Join(".ci", "release"), version)
	require.Contains(t, read(t, filepath.Join(clone, "CHANGELOG.md")), "\n## Unreleased\n\n## "+version+", 2")
	return says
}

// A tree that was released is released again, as the workflow tries on the tag. The last tag, which
// starts that workflow, is pushed alone.
func TestReleaseTwice(t *testing.T) {
	clone := snapshot(t, top(t))
	says := release(t, clone, "v0.998.0")
	require.Regexp(t, `\ngit push --atomic origin HEAD( [a-z/]+/v0\.998\.0){8}\ngit push origin v0\.998\.0$`, says)
	require.Empty(t, before(clone))
	release(t, snapshot(t, clone), version)

	note(t, clone)
	run(t, clone, nil, "git", "commit", "-qam", "a change")
	require.Equal(t, "v0.998.0", before(clone))
	release(t, clone, version)
	require.Equal(t, "v0.998.0", before(clone)) // not the tag that is here
	for _, v := range []string{"v0.998.0", version} {
		require.Contains(t, read(t, filepath.Join(clone, "CHANGELOG.md")), "\n## "+v+", 2")
	}
}

// .ci/release refuses a wrong version, a tag that exists, and uncommitted changes. It then
// changes nothing.
func TestReleaseRefused(t *testing.T) {
	clone := snapshot(t, top(t))
	head := run(t, clone, nil, "git", "rev-parse", "HEAD")
	refused := func(says string, args ...string) {
		t.Helper()
		cmd := exec.Command(filepath.Join(clone, ".ci", "release"), args...)
		cmd.Env = environ()
		out, err := cmd.CombinedOutput()
		require.Error(t, err)
		require.Contains(t, string(out), says)
		require.Equal(t, head, run(t, clone, nil, "git", "rev-parse", "HEAD"))
	}
	refused("say which version")
	refused("say which version", "1.0.0")
	refused("say which version", "v2.0.0") // its modules would need other paths
	run(t, clone, nil, "git", "tag", "metrics/prom/v0.1.0")
	refused("metrics/prom/v0.1.0 is there already", "v0.1.0")
	write(t, filepath.Join(clone, "forgotten"), "")
	refused("commit your changes first", "v0.2.0")
	require.Equal(t, "metrics/prom/v0.1.0", run(t, clone, nil, "git", "tag"))
}

// imports returns a file that imports packages of this project.
func imports(packages ...string) string {
	text := "package main\n\n"
	for _, p := range packages {
		text += fmt.Sprintf("import _ %q\n", path+"/"+p)
	}
	return text
}

// top returns the work tree of this repository.
func top(t *testing.T) string {
	if exec.Command("git", "rev-parse", "HEAD").Run() != nil {
		t.Skip("not in a clone")
	}
	return run(t, "", nil, "git", "rev-parse", "--show-toplevel")
}

// note adds a line to what is unreleased: after a release there is none.
func note(t *testing.T, dir string) {
	file := filepath.Join(dir, "CHANGELOG.md")
	write(t, file, strings.Replace(read(t, file), "\n## Unreleased\n", "\n## Unreleased\n\nA change.\n", 1))
}

// snapshot returns a repository with one commit: a work tree, with a change to release.
func snapshot(t *testing.T, top string) string {
	dir := t.TempDir()
	for file := range strings.SplitSeq(run(t, top, nil, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"), "\x00") {
		info, err := os.Stat(filepath.Join(top, file))
		if file == "" || os.IsNotExist(err) { // deleted, and not yet committed
			continue
		}
		require.NoError(t, err)
		to := filepath.Join(dir, file)
		require.NoError(t, os.MkdirAll(filepath.Dir(to), 0o755))
		require.NoError(t, os.WriteFile(to, []byte(read(t, filepath.Join(top, file))), info.Mode()))
	}
	note(t, dir)
	run(t, dir, nil, "git", "init", "-q")
	run(t, dir, nil, "git", "config", "user.name", "test")
	run(t, dir, nil, "git", "config", "user.email", "test@example.com")
	run(t, dir, nil, "git", "config", "commit.gpgsign", "false")
	run(t, dir, nil, "git", "config", "tag.gpgsign", "false")
	run(t, dir, nil, "git", "add", "--all")
	run(t, dir, nil, "git", "commit", "-qm", "snapshot")
	return dir
}

// publish writes every module of a repository into a folder, in the format of a module proxy.
// It takes each module from its tag, and returns the paths of the modules.
func publish(t *testing.T, repo, proxy string) (modules []string) {
	for tag := range strings.FieldsSeq(run(t, repo, nil, "git", "tag")) {
		sub := strings.TrimSuffix(strings.TrimSuffix(tag, version), "/")
		gomod := run(t, repo, nil, "git", "show", tag+":"+strings.TrimPrefix(sub+"/go.mod", "/"))
		file, err := modfile.Parse(tag, []byte(gomod), nil)
		require.NoError(t, err)
		require.Empty(t, file.Replace, tag)
		require.Empty(t, file.Exclude, tag)
		name := file.Module.Mod.Path
		require.Equal(t, strings.TrimSuffix(path+"/"+sub, "/"), name)
		modules = append(modules, name)

		dir := filepath.Join(proxy, filepath.FromSlash(name), "@v")
		require.NoError(t, os.MkdirAll(dir, 0o755))
		info, err := json.Marshal(map[string]any{"Version": version, "Time": time.Unix(0, 0).UTC()})
		require.NoError(t, err)
		write(t, filepath.Join(dir, "list"), version+"\n")
		write(t, filepath.Join(dir, version+".info"), string(info))
		write(t, filepath.Join(dir, version+".mod"), gomod)
		archive, err := os.Create(filepath.Join(dir, version+".zip"))
		require.NoError(t, err)
		err = zip.CreateFromVCS(archive, module.Version{Path: name, Version: version}, repo, tag, sub)
		require.NoError(t, cmp.Or(err, archive.Close()))
	}
	return modules
}

// run returns what a command printed.
func run(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = dir, append(environ(), env...)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	require.NoError(t, err, "%s\n%s", cmd, errs.String())
	return strings.TrimSpace(string(out))
}

// environ returns the environment without the variables that git sets for hooks. These would
// direct the commits and tags of the test to the real repository.
func environ() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "GIT_") })
}

func read(t *testing.T, file string) string {
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	return string(text)
}

func write(t *testing.T, file, text string) {
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
}
