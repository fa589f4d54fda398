package tool

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// Completion is dmutex completion.
type Completion struct {
	Shell string   `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
	Words []string `arg:"" optional:"" passthrough:"" help:"What bash adds when it asks."`
}

// With these a shell asks this command, with the line in COMP_LINE, what may stand at its end.
var completions = map[string]string{
	"bash": `complete -o default -C "dmutex completion bash" dmutex`,
	"zsh":  `_dmutex() { local o=(${(f)"$(COMP_LINE="${words[1,CURRENT]}" dmutex completion zsh)"}); compadd -a o || _files }; compdef _dmutex dmutex`,
	"fish": `complete -c dmutex -a '(COMP_LINE=(commandline -cp) dmutex completion fish)'`,
}

// Run prints the script, or what may stand at the end of the line: nothing for a file.
func (c *Completion) Run(con *Console, app *kong.Context) error {
	line, asked := os.LookupEnv("COMP_LINE")
	if !asked {
		fmt.Fprintln(con, completions[c.Shell])
		return nil
	}
	at := strings.LastIndexAny(line, " =") + 1
	shown := line[strings.LastIndexByte(line, ' ')+1 : at] // a flag, if its value is in the same word
	if c.Shell == "bash" {                                 // which breaks words at =
		shown = ""
	}
	node, flags := app.Model.Node, app.Model.Flags
	var flag *kong.Flag // its value is next
	for i, word := range strings.FieldsFunc(line[:at], func(r rune) bool { return r == ' ' || r == '=' }) {
		child := slices.IndexFunc(node.Children, func(n *kong.Node) bool { return n.Name == word })
		switch {
		case i == 0: // the name of the tool
		case flag != nil:
			flag = nil
		case strings.HasPrefix(word, "-") && word != "--":
			for _, f := range flags {
				if !f.IsBool() && (word == "--"+f.Name || word == "-"+string(f.Short)) {
					flag = f
				}
			}
		case child < 0:
			return nil
		default:
			node = node.Children[child]
			flags = slices.Concat(cmp.Or(node.DefaultCmd, node).AllFlags(true)...)
		}
	}
	var options []string
	switch {
	case flag != nil && flag.Name == "algorithm":
		options = strings.Split(AlgorithmNames(), ", ")
	case flag != nil:
		options = flag.EnumSlice()
	case strings.HasPrefix(line[at:], "-"):
		for _, f := range flags {
			options = append(options, "--"+f.Name)
		}
	default:
		for _, n := range node.Children {
			if !n.Hidden {
				options = append(options, n.Name)
			}
		}
	}
	for _, o := range options {
		if o != "" && strings.HasPrefix(o, line[at:]) {
			fmt.Fprintln(con, shown+o)
		}
	}
	return nil
}
