package quorum

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool"
	"github.com/dmutex/dmutex/quorum"
)

// quorumRun runs dmutex quorum on arguments. A mistake in the command line, and
// a run that failed, both come back as the error.
func quorumRun(t *testing.T, stdin string, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	var root struct {
		Quorum Cmd `cmd:""`
	}
	parser, err := kong.New(&root, kong.Name("dmutex"), kong.Vars{"constructions": tool.ConstructionNames()}, kong.Writers(io.Discard, io.Discard))
	require.NoError(t, err)
	command, err := parser.Parse(append([]string{"quorum"}, args...))
	if err != nil {
		return "", err
	}
	err = command.Run(&tool.Console{In: strings.NewReader(stdin), Out: &out, Err: io.Discard})
	return out.String(), err
}

func TestQuorumBuild(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"--kind=fpp --n=7", "1 2 3\n1 4 5\n1 6 7\n2 4 6\n2 5 7\n3 4 7\n3 5 6\n"},
		{"--kind=majority --n=3 --json", "[[1,2],[1,3],[2,3]]\n"},
		{"--kind=central --n=5", "1\n"},
		{"--kind=weighted --votes=2,1,1,1", "1 2\n1 3\n1 4\n2 3 4\n"},
		{"--kind=weighted --votes=2,1,1,1 --threshold=4", "1 2 3\n1 2 4\n1 3 4\n"},
		{"--kind=grid --n=6 --columns=3", "1 2 3 4\n1 2 3 5\n1 2 3 6\n1 4 5 6\n2 4 5 6\n3 4 5 6\n"},
		{"--kind=tree --n=4 --degree=3", "1 2\n1 3\n1 4\n2 3 4\n"},
		{"--kind=hqc --n=4 --degree=2", "1 2 3 4\n"},
		{"--kind=wall --n=3 --widths=1,2", "1 2\n1 3\n2 3\n"},
		{"--kind=wall --widths=1,2", "1 2\n1 3\n2 3\n"},
		{"--kind=wheel --n=4", "1 2\n1 3\n1 4\n2 3 4\n"},
		{"--kind=central --n=3 --assign --json", `{"1":[1],"2":[1],"3":[1]}` + "\n"},
	} {
		out, err := quorumRun(t, "", append([]string{"build"}, strings.Fields(c.args)...)...)
		require.NoError(t, err, c.args)
		require.Equal(t, c.want, out, c.args)
	}
	out, err := quorumRun(t, "", "build", "--kind=fpp", "--n=7", "--assign")
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(out, "1: 1 2 3\n2: 2 4 6\n"), out)
	require.Contains(t, out, "M4 (equal duty 3): yes\n")
	out, err = quorumRun(t, "", "build", "--kind=majority", "--n=60", "--assign")
	require.NoError(t, err)
	require.Contains(t, out, "M4 (equal duty 31): yes\n")
}

func TestQuorumBuildRefuses(t *testing.T) {
	for _, c := range []struct{ args, says string }{
		{"--n=7", "--kind is missing: choose one of"},
		{"--kind=hexagon --n=7", "--kind=hexagon: choose one of central, majority"},
		{"--kind=majority", "--n is missing: choose 1 to 4096 sites"},
		{"--kind=weighted", "--votes is missing"},
		{"--kind=majority --n=-3", "choose 1 to 4096 sites"},
		{"--kind=majority --n=99999", "choose 1 to 4096 sites"},
		{"--kind=fpp --n=43", "as 7, 13, 21, 31 and 57 are; Grid takes any number"},
		{"--kind=fpp --n=7 --columns=3", "--columns is not for --kind=fpp"},
		{"--kind=weighted --n=7", "--n is not for --kind=weighted"},
		{"--kind=weighted --votes=1,1 --threshold=1", "let the threshold be at least 2"},
		{"--kind=wall --n=4 --widths=1,2", "let the widths sum to that"},
		{"--kind=grid --n=4 --columns=-2", "give it at least one"},
		{"--kind=majority --n=60", "too many to print; --assign prints one quorum for each site"},
	} {
		_, err := quorumRun(t, "", append([]string{"build"}, strings.Fields(c.args)...)...)
		require.ErrorContains(t, err, c.says, c.args)
	}
}

// Every construction of the library is a kind.
func TestQuorumKinds(t *testing.T) {
	for _, k := range quorum.Constructions[int]() {
		c, err := k.Build(1, 2, 3, 4, 5, 6, 7)
		require.NoError(t, err)
		want := slices.Collect(c.Quorums())
		out, err := quorumRun(t, "", "build", "--kind="+k.Name, "--n=7", "--json")
		require.NoError(t, err)
		var got [][]int
		require.NoError(t, json.Unmarshal([]byte(out), &got))
		require.Equal(t, want, got, k.Name)
	}
}

func TestQuorumCheck(t *testing.T) {
	for _, c := range []struct {
		name, file string
		says       []string
		failed     bool
	}{
		{"lines", "1 2\n1,3\n# the last one\n{2, 3}\n", []string{"a coterie: 3 quorums over 3 sites\n", "load          0.6667\n", "dominated     no\n", "M4 (equal duty 2): yes"}, false},
		{"one line", "{1,2},{1,3}, {2 3}\n", []string{"a coterie: 3 quorums over 3 sites\n"}, false},
		{"disjoint on one line", "{1,2},{3,4}\n", []string{"line 1: quorum: intersection: quorum 0 {1,2} and quorum 1 {3,4}"}, true},
		{"JSON", `[["a","b"],["b","c"],["a","c"]]`, []string{"a coterie: 3 quorums"}, false},
		{"JSON numbers", "[[1,2],[2,10],[1,10]]", []string{"a coterie"}, false},
		{"dominated", "1 2 3\n1 2 4\n1 3 4\n2 3 4\n", []string{"dominated     yes: neither these sites nor all others have a quorum: 1 4\n"}, false},
		{"disjoint", "1 2 3\n2 5 7\n\n5 7 9\n", []string{"lines 1 and 4: quorum: intersection: quorum 0 {1,2,3} and quorum 2 {5,7,9} share no site", "not a coterie: 1 offense\n"}, true},
		{"contained", "[[1,2,3],[1,3]]", []string{"quorum: minimality: quorum 0 {1,2,3} contains quorum 1 {1,3}; remove the larger\n"}, true},
		{"empty quorum", "1 2\n{}\n", []string{"line 2: quorum: non-emptiness: quorum 1 {} has no site"}, true},
		{"empty list", "[]", []string{"no quorum is given"}, true},
		{"twice", "a a\n", []string{"line 1: quorum: duplicate: quorum 0 {a,a} names a site twice"}, true},
		{"assignment", `{"1":[1,2],"2":[2,3],"3":[1,3]}`, []string{"an assignment of quorums to 3 sites\n", "M1 (any two share a site): yes\nM2 (own membership): yes\nM3 (equal size 2): yes\nM4 (equal duty 2): yes\n"}, false},
		{"bad assignment", `{"a":["a"],"b":["b"]}`, []string{"M1 (any two share a site): no: {a,b}\n"}, true},
		{"unknown site", `{"a":["a","z"]}`, []string{"site 1 (z) in the quorum of site 0 (a) is unknown"}, true},
		{"owner twice", `{"a":["a"],"a":["a"]}`, []string{"site 1 (a) is given twice"}, true},
	} {
		out, err := quorumRun(t, c.file, "check", "-")
		if c.failed {
			require.ErrorIs(t, err, tool.ErrFailed, c.name)
		} else {
			require.NoError(t, err, c.name)
		}
		for _, says := range c.says {
			require.Contains(t, out, says, c.name)
		}
	}

	var many strings.Builder
	for i := range 30 {
		many.WriteString(strings.Repeat("x", i+1) + "\n")
	}
	out, err := quorumRun(t, many.String(), "check", "-")
	require.ErrorIs(t, err, tool.ErrFailed)
	require.Contains(t, out, "... and 335 more\nnot a coterie: 435 offenses\n")
	require.Equal(t, 102, strings.Count(out, "\n"))
}

func TestQuorumCheckCannotRead(t *testing.T) {
	for _, c := range []struct{ file, says string }{
		{"", "the file is empty"},
		{"# nothing\n", "nothing but comments"},
		{"1 2}\n", "line 1: 1 2}: close the brace, or leave out both"},
		{"{1,2}{1,3}\n", "write one quorum a line, or several as {1,2},{1,3}"},
		{"[[1,2],2]", "it is not a list of quorums such as [[1,2],[1,3],[2,3]]: element 2: 2 is not a list"},
		{"[[1,2],", "it is not a list of quorums such as"},
		{"[[1,[2]]]", "[2] is not a site"},
		{"1: 1 2\n2: 2 1\n", "line 1 gives a site its quorum; write an assignment as JSON: --assign --json"},
		{"1 2\n1 \x1b[2J\n", "line 2: \"1 \\x1b[2J\": this is not text; remove the control characters"},
		{"[[1,null]]", "null is not a site"},
		{`{"1":2}`, `it gives no quorum to site 1, as {"1":[1,2],"2":[2,1]} would: 2 is not a list`},
	} {
		_, err := quorumRun(t, c.file, "check", "-")
		require.ErrorContains(t, err, c.says, c.file)
		require.NotErrorIs(t, err, tool.ErrFailed)
	}
	_, err := quorumRun(t, "", "check", filepath.Join(t.TempDir(), "absent"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

// check accepts what build prints, in every form.
func TestQuorumBuildThenCheck(t *testing.T) {
	for _, k := range quorum.Constructions[int]() {
		for _, form := range [][]string{nil, {"--json"}, {"--assign", "--json"}} {
			built, err := quorumRun(t, "", append([]string{"build", "--kind=" + k.Name, "--n=13"}, form...)...)
			require.NoError(t, err)
			file := filepath.Join(t.TempDir(), "quorums")
			require.NoError(t, os.WriteFile(file, []byte(built), 0o600))
			_, err = quorumRun(t, "", "check", file)
			require.NoError(t, err, "%s %v", k.Name, form)
		}
	}
}

func TestQuorumCompare(t *testing.T) {
	out, err := quorumRun(t, "", "compare", "--n=7", "--p=0.9")
	require.NoError(t, err)
	require.Equal(t, ""+
		"construction  quorums  size    load  survives  available  messages\n"+
		"majority           35     4  0.5714         3   0.997272       9.0\n"+
		"tree               15   3-4  0.5000         2   0.993773       6.4\n"+
		"fpp                 7     3  0.4286         2   0.993190       6.0\n"+
		"wall               13   3-4  0.4706         2   0.990274       6.4\n"+
		"hqc                 7     4  0.5714         1   0.955282       9.0\n"+
		"wheel               7   2-6  0.5455         1   0.953143       3.0\n"+
		"grid                5   3-4  0.6000         1   0.950106       7.7\n"+
		"central             1     1  1.0000         0   0.900000       2.6\n", out)

	out, err = quorumRun(t, "", "compare", "--n=7")
	require.NoError(t, err)
	require.NotContains(t, out, "available")
	require.Contains(t, out, "\ncentral ")

	out, err = quorumRun(t, "", "compare", "--n=7", "--p=0.9", "--format=csv")
	require.NoError(t, err)
	lines, err := csv.NewReader(strings.NewReader(out)).ReadAll()
	require.NoError(t, err)
	require.Len(t, lines, 9)
	require.Equal(t, "construction", lines[0][0])
	require.Equal(t, []string{"fpp", "7", "3", "3"}, lines[3][:4])

	out, err = quorumRun(t, "", "compare", "--n=3", "--p=1,0.5,0", "--format=json")
	require.NoError(t, err)
	var rows []row
	require.NoError(t, json.Unmarshal([]byte(out), &rows))
	require.Equal(t, "central", rows[0].Construction)
	require.Equal(t, 1.0, rows[0].Availability.Value)
	out, err = quorumRun(t, "", "compare", "--n=3", "--format=json")
	require.NoError(t, err)
	require.NotContains(t, out, "availability")
}

func TestQuorumCompareRefuses(t *testing.T) {
	for _, c := range []struct{ args, says string }{
		{"", "--n is missing"},
		{"--n=-1", "choose 1 to 1024 sites"},
		{"--n=2000", "choose 1 to 1024 sites"},
		{"--n=3 --p=1.5", "--p=1.5: choose from 0 to 1"},
		{"--n=3 --p=0.5,0.5", "--p has 2 probabilities: give one, or one for each of 3 sites"},
		{"--n=3 --format=xml", "must be one of"},
	} {
		_, err := quorumRun(t, "", append([]string{"compare"}, strings.Fields(c.args)...)...)
		require.ErrorContains(t, err, c.says, c.args)
	}
}
