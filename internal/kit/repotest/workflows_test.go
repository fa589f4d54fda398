package repotest

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The nightly workflow fuzzes each target that there is, and none that is gone.
func TestNightlyFuzzesAll(t *testing.T) {
	var exist []string
	target := regexp.MustCompile(`(?m)^func (Fuzz\w+)\(`)
	require.NoError(t, filepath.WalkDir(".", func(file string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(file, "_test.go") {
			return err
		}
		text, err := os.ReadFile(file)
		for _, match := range target.FindAllSubmatch(text, -1) {
			exist = append(exist, path.Dir(filepath.ToSlash(file))+" "+string(match[1]))
		}
		return err
	}))
	require.NotEmpty(t, exist)
	workflow, err := os.ReadFile(".github/workflows/nightly.yml")
	require.NoError(t, err)
	var named []string
	for _, match := range regexp.MustCompile(`- \{package: (\S+), target: (\w+)\}`).FindAllSubmatch(workflow, -1) {
		named = append(named, string(match[1])+" "+string(match[2]))
	}
	require.ElementsMatch(t, exist, named)
}

// Each module is one of the workspace, and .ci/run checks it.
func TestModules(t *testing.T) {
	ci := regexp.MustCompile(`MODULES=\((.*)\)`).FindStringSubmatch(read(t, ".ci/run")[0])
	require.NotNil(t, ci)
	var checked, used []string
	for _, dir := range strings.Fields(ci[1]) {
		checked = append(checked, filepath.Join(dir, "go.mod"))
	}
	for _, match := range regexp.MustCompile(`(?m)^\t(\.\S*)$`).FindAllStringSubmatch(read(t, "go.work")[0], -1) {
		used = append(used, filepath.Join(match[1], "go.mod"))
	}
	exist := []string{"go.mod"}
	for _, pattern := range []string{"*/go.mod", "*/*/go.mod"} {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		exist = append(exist, files...)
	}
	require.ElementsMatch(t, exist, used, "go.work")
	require.ElementsMatch(t, exist, checked, "MODULES of .ci/run")
}

// The workflows name each action by its hash, so that its owner cannot change it.
func TestWorkflowsArePinned(t *testing.T) {
	files, err := filepath.Glob(".github/workflows/*.yml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		workflow, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, match := range regexp.MustCompile(`uses: (.*)`).FindAllStringSubmatch(string(workflow), -1) {
			require.Regexp(t, `^[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$`, match[1], file)
		}
		require.Contains(t, string(workflow), "\npermissions:\n  contents: read\n", file)
	}
}
