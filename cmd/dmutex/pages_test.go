package main

import (
	"io"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/cmd/dmutex/internal/run"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool"
)

// grammar returns the parser of the tool.
func grammar(t *testing.T) *kong.Kong {
	parser, err := kong.New(new(commands), kong.Name("dmutex"), kong.Writers(io.Discard, io.Discard), tool.Vars())
	require.NoError(t, err)
	return parser
}

// pages returns the pages that a user reads, by name.
func pages(t *testing.T) map[string]string {
	files, err := filepath.Glob("../../docs/*.md")
	require.NoError(t, err)
	texts := make(map[string]string)
	for _, file := range append(files, "../../README.md") {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		texts[filepath.Base(file)] = string(text)
	}
	return texts
}

// below returns the flags of a command and of its subcommands.
func below(node *kong.Node) (flags []*kong.Flag) {
	flags = slices.Concat(node.AllFlags(false)...)
	for _, n := range node.Children {
		flags = append(flags, below(n)...)
	}
	return flags
}

func has(flags []*kong.Flag, name string) bool {
	return slices.ContainsFunc(flags, func(f *kong.Flag) bool {
		return name == "--"+f.Name || f.Short != 0 && name == "-"+string(f.Short)
	})
}

var (
	invoked = regexp.MustCompile(`(?:^|do |[=/])(?:dmutex|go run (?:-tags nats )?\./cmd/dmutex) ([a-z-][^|;>#]*)`)
	words   = regexp.MustCompile(`"[^"]*"|[^\s"]+`)
	blocks  = regexp.MustCompile("(?ms)^```(?:go)?\n(.*?)^```$")
	inline  = regexp.MustCompile("`([^`\n]+)`")
	long    = regexp.MustCompile(`(?:^|[\s(=])(--[a-z][a-z-]*)`)
)

// The tool accepts every command line in a block of a page.
func TestCommandLinesOfPages(t *testing.T) {
	accepted := 0
	for page, text := range pages(t) {
		for _, block := range blocks.FindAllStringSubmatch(text, -1) {
			for line := range strings.Lines(block[1]) {
				match := invoked.FindStringSubmatch(line)
				if match == nil || strings.HasPrefix(line, "source ") || strings.HasPrefix(line, "COPY ") {
					continue
				}
				var args []string
				for _, word := range words.FindAllString(match[1], -1) {
					args = append(args, strings.NewReplacer(`"`, "", "$p", "0.5").Replace(word))
				}
				_, err := grammar(t).Parse(args)
				require.NoError(t, err, "%s: %s", page, line)
				accepted++
			}
		}
	}
	require.Greater(t, accepted, 30)
}

// Every flag and variable that a page or a help text names exists. In docs/tool.md, the command
// of the section has it.
func TestFlagsOfPages(t *testing.T) {
	app := grammar(t).Model.Node
	all := below(app)
	variables := []string{"DMUTEX_FENCE", "DMUTEX_LOCK", "DMUTEX_LONG", "DMUTEX_PERMIT"} // these are no flags
	for _, f := range all {
		variables = append(variables, f.Envs...)
	}
	foreign := map[string]string{"--force": "kubectl", "--repo": "gh", "--no-allow-rollup": "nats", "--self": "the program in docs/operating.md", "--only": "bench"}
	check := func(where, text string, flags []*kong.Flag) {
		for _, flag := range long.FindAllStringSubmatch(text, -1) {
			require.True(t, has(flags, flag[1]) || foreign[flag[1]] != "", "%s: %s: there is no flag %s", where, text, flag[1])
		}
		for _, name := range regexp.MustCompile(`\bDMUTEX_[A-Z_]+`).FindAllString(text, -1) {
			require.Contains(t, variables, name, where)
		}
	}
	named := func(line string) *kong.Node { // the command with which a line begins
		first, _, _ := strings.Cut(line, " ")
		if i := slices.IndexFunc(app.Children, func(n *kong.Node) bool { return n.Name == first }); i >= 0 {
			return app.Children[i]
		}
		return nil
	}
	for page, text := range pages(t) {
		text = blocks.ReplaceAllString(text, "")
		for section := range strings.SplitSeq(text, "\n## ") {
			flags := all
			name, _, _ := strings.Cut(section, "\n")
			if n := named(name); page == "tool.md" && n != nil {
				flags = below(n)
			}
			for _, code := range inline.FindAllStringSubmatch(section, -1) {
				line := code[1]
				if match := invoked.FindStringSubmatch(line); match != nil {
					line = match[1]
					require.True(t, line[0] == '-' || named(line) != nil, "%s: %s", page, code[1])
				}
				if n := named(line); n != nil {
					check(page, line, below(n))
					continue
				}
				check(page, code[1], flags)
				if page == "tool.md" && regexp.MustCompile(`^-[a-zA-Z]\b`).MatchString(code[1]) && code[1] != "-tags nats" {
					require.True(t, has(flags, code[1][:2]), "%s: %s", page, code[1])
				}
			}
		}
	}
	for _, n := range append(app.Leaves(false), app.Children...) {
		check(n.Name, n.Help+" "+n.Detail, all)
		for _, f := range n.Flags {
			check(n.Name+" --"+f.Name, f.Help, all)
		}
	}
}

// docs/tool.md names each flag of dmutex run, and the code reads it.
func TestPageNamesFlags(t *testing.T) {
	leaves, page := grammar(t).Model.Leaves(false), pages(t)["tool.md"]
	for _, f := range leaves[slices.IndexFunc(leaves, func(n *kong.Node) bool { return n.Name == "run" })].Flags {
		short := f.Short != 0 && strings.Contains(page, "`-"+string(f.Short))
		require.True(t, short || strings.Contains(page, "--"+f.Name), "docs/tool.md does not name --%s of dmutex run", f.Name)
	}
	var code strings.Builder
	files, err := filepath.Glob("internal/run/*.go")
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		code.Write(text)
	}
	for f := range reflect.TypeFor[run.Cmd]().Fields() {
		read := regexp.MustCompile(`\b[cr]\.` + f.Name + `\b`).MatchString(code.String()) // as a Cmd or a run
		require.True(t, f.Anonymous || read, "dmutex run has a flag for Cmd.%s, and does not read it", f.Name)
	}
}

// The defaults that docs/tool.md names are those of the flags.
func TestDefaultsOfPages(t *testing.T) {
	app := grammar(t).Model
	page := strings.Join(strings.Fields(pages(t)["tool.md"]), " ")
	for _, c := range []struct{ says, command, flag, value string }{
		{"the next process gets the lock after `--lease`, 10 seconds by default", "run", "lease", "10s"},
		{"the exit status is 123, or that of `-E CODE`", "run", "conflict-exit-code", "123"},
		{"comes after `--lease`, 10 seconds by default", "serve", "lease", "10s"},
		{"Three times (`--kills`)", "tellers", "kills", "3"},
		{"`--store=file`, the default", "tellers", "store", "file"},
	} {
		require.Contains(t, page, c.says)
		leaf := slices.IndexFunc(app.Leaves(false), func(n *kong.Node) bool { return n.Name == c.command })
		flag := slices.IndexFunc(app.Leaves(false)[leaf].Flags, func(f *kong.Flag) bool { return f.Name == c.flag })
		require.Equal(t, c.value, app.Leaves(false)[leaf].Flags[flag].Default, c.says)
	}
}
