package repotest

import (
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A line is one of the table of layers in CONTRIBUTING.md.
type line struct {
	level    string // 0 to 4, or empty: any may import it
	packages []string
	text     string
}

// layersOfPage reads the table of layers. Of "`transport/memlink`, `tcplink`", the second is transport/tcplink.
func layersOfPage(t *testing.T) (lines []line) {
	page, err := os.ReadFile("CONTRIBUTING.md")
	require.NoError(t, err)
	for _, m := range regexp.MustCompile(`(?m)^\| ([0-4]?) ?\| ([^|]+) \| (.+) \|$`).FindAllSubmatch(page, -1) {
		l := line{level: string(m[1]), text: string(m[3])}
		for _, name := range regexp.MustCompile("`([^`]+)`").FindAllSubmatch(m[2], -1) {
			name := string(name[1])
			if n := len(l.packages); n > 0 && !strings.Contains(name, "/") && strings.Contains(l.packages[0], "/") {
				name = path.Join(path.Dir(l.packages[0]), name)
			}
			if name == "dmutex" {
				name = "."
			}
			l.packages = append(l.packages, name)
		}
		lines = append(lines, l)
	}
	return lines
}

// The table of layers names each row of this house once and nothing else, says of the packages without a layer which
// are pure, and gives each a layer that its imports allow.
func TestLayers(t *testing.T) {
	lines := layersOfPage(t)
	require.Greater(t, len(lines), 50)
	of := func(name string) *line {
		for at := name; ; at = path.Dir(at) {
			for i := range lines {
				if slices.Contains(lines[i].packages, at) {
					return &lines[i]
				}
			}
			if at == "." || path.Dir(at) == "." {
				return nil
			}
		}
	}
	named := make(map[string]bool)
	for _, l := range lines {
		for _, p := range l.packages {
			if named[p] {
				t.Errorf("CONTRIBUTING.md names %s twice", p)
			}
			named[p] = true
			if info, err := os.Stat(filepath.FromSlash(p)); err != nil || !info.IsDir() {
				t.Errorf("CONTRIBUTING.md names %s, which is not there", p)
			}
		}
	}
	for _, row := range rows {
		l := of(row.name)
		if l == nil {
			t.Errorf("CONTRIBUTING.md does not say what belongs into %s", row.name)
			continue
		}
		if pure := strings.HasSuffix(l.text, "; pure"); l.level == "" && pure != row.pure {
			t.Errorf("CONTRIBUTING.md: %s is pure: %v. It says: %s", row.name, row.pure, l.text)
		}
		if l.level == "1" && !row.pure {
			t.Errorf("CONTRIBUTING.md has %s in layer 1, and it is not pure", row.name)
		}
		for _, other := range row.may {
			if o := of(other); o != nil && l.level != "" && o.level > l.level {
				t.Errorf("CONTRIBUTING.md has %s in layer %s, and it imports %s of layer %s", row.name, l.level, other, o.level)
			}
		}
	}
}

// The commands in the pages name packages and tests that are there.
func TestCommands(t *testing.T) {
	for file, text := range pages(t) {
		for _, command := range regexp.MustCompile("go test [^`\n]+").FindAllString(strings.ReplaceAll(text, `\|`, "|"), -1) {
			var functions []string
			dirs := regexp.MustCompile(`\./([a-z0-9/]+)`).FindAllStringSubmatch(command, -1)
			for _, dir := range dirs {
				require.DirExists(t, dir[1], "%s: %s", file, command)
				functions = slices.AppendSeq(functions, maps.Keys(testsOf(t, dir[1])))
			}
			for _, flag := range regexp.MustCompile(`-(?:run|bench|fuzz) '?([^'/ ]+)`).FindAllStringSubmatch(command, -1) {
				pattern, err := regexp.Compile(flag[1])
				require.NoError(t, err, "%s: %s", file, command)
				there := len(dirs) == 0 || flag[1] == "^$" || slices.ContainsFunc(functions, pattern.MatchString)
				require.True(t, there, "%s: no test is of the name in %s", file, command)
			}
		}
	}
}

// The table of long tests names each package that has some.
func TestLongTests(t *testing.T) {
	page, err := os.ReadFile("CONTRIBUTING.md")
	require.NoError(t, err)
	named := make(map[string]bool)
	for _, m := range regexp.MustCompile("(?m)^\\| (`go test .+?) \\| .+ \\| .+ \\|$").FindAllSubmatch(page, -1) {
		command := strings.ReplaceAll(string(m[1]), `\|`, "|")
		for _, dir := range regexp.MustCompile("\\./([a-z/]+?)(/\\.\\.\\.)?[ `]").FindAllStringSubmatch(command, -1) {
			named[dir[1]] = true
			if dir[2] != "" {
				below, err := filepath.Glob(filepath.Join(dir[1], "*"))
				require.NoError(t, err)
				for _, d := range below {
					named[filepath.ToSlash(d)] = true
				}
			}
		}
	}
	require.NoError(t, filepath.WalkDir(".", func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(file, "_test.go") {
			return err
		}
		text, err := os.ReadFile(file)
		if dir := filepath.ToSlash(filepath.Dir(file)); strings.Contains(string(text), `Getenv("DMUTEX_LONG")`) && !named[dir] {
			t.Errorf("%s has a long form, and the table of CONTRIBUTING.md does not name ./%s", file, dir)
		}
		return err
	}))
}
