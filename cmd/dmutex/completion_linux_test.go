package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool/tooltest"
)

// The last word of a line is completed to a command, a flag or a value. Where nothing fits,
// the shell offers files.
func TestCompletion(t *testing.T) {
	for _, c := range []struct{ shell, line, want string }{
		{"bash", "dmutex se", "serve"},
		{"bash", "dmutex demo ", "tellers philosophers"},
		{"bash", "dmutex trace r", "replay"},
		{"bash", "dmutex demo --ki", "--kill --kills"},
		{"bash", "dmutex  run -n --lock l --conf", "--conflict-exit-code"},
		{"bash", "dmutex run --lock=l -", "--help --version --store --at --lock --permits --shared --nonblock --wait --conflict-exit-code --lease --cert --key --authority --creds --nkey --inbox --grace"},
		{"bash", "dmutex run --lock ", ""},
		{"bash", "dmutex run -w ", ""},
		{"bash", "dmutex run --lock l -- --l", ""},
		{"bash", "dmutex run --lock l date --l", ""},
		{"bash", "dmutex sim --sh", "--shares"},
		{"bash", "dmutex serve --algorithm ce", "central"},
		{"bash", "dmutex serve --algorithm=ce", "central"},
		{"zsh", "dmutex serve --algorithm=ce", "--algorithm=central"},
		{"fish", "dmutex demo --link=", "--link=tcp --link=nats"},
		{"bash", "dmutex no such ", ""},
		{"bash", "dmutex", ""},
		{"bash", "", "demo check sim step run serve evict trace quorum completion help version"},
	} {
		t.Setenv("COMP_LINE", c.line)
		status, stdout, stderr := invoke("completion", c.shell, "dmutex", "", "")
		require.Equal(t, tool.StatusOK, status, c.line)
		require.Empty(t, stderr, c.line)
		require.Equal(t, c.want, strings.TrimSuffix(strings.ReplaceAll(stdout, "\n", " "), " "), c.line)
	}
}

// Each shell completes a command, a flag and two values in the line that is typed.
func TestCompletionInShells(t *testing.T) {
	for shell, settings := range map[string]string{
		"bash": "PS1='ready> '\nsource <(dmutex completion bash)\n",
		"zsh":  "autoload -U compinit && compinit -u\nPS1='ready> '\nsource <(dmutex completion zsh)\n",
		"fish": "dmutex completion fish | source\nfunction fish_prompt\necho 'ready> '\nend\n",
	} {
		t.Run(shell, func(t *testing.T) {
			if _, err := exec.LookPath(shell); err != nil {
				t.Skip(err)
			}
			t.Parallel()
			home := t.TempDir()
			// Without this folder fish first reads all manuals of the system.
			require.NoError(t, os.MkdirAll(filepath.Join(home, ".local/share/fish/generated_completions"), 0o700))
			file := filepath.Join(home, ".zshrc")
			require.NoError(t, os.WriteFile(file, []byte(settings), 0o600))
			self, err := os.Executable()
			require.NoError(t, err)
			require.NoError(t, os.Symlink(self, filepath.Join(home, "dmutex")))
			keyboard, terminal := tooltest.Terminal(t)
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			args := map[string][]string{"bash": {"--rcfile", file, "-i"}, "fish": {"--init-command", "source " + file}}
			cmd := exec.CommandContext(ctx, shell, args[shell]...)
			cmd.Env = append(os.Environ(), "HOME="+home, "XDG_DATA_HOME=", "ZDOTDIR="+home, "TERM=dumb", "PATH="+home+":"+os.Getenv("PATH"))
			cmd.Stdin, cmd.Stdout, cmd.Stderr = terminal, terminal, terminal
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
			require.NoError(t, cmd.Start())
			terminal.Close()
			defer cmd.Wait()
			defer cmd.Process.Kill()
			said := ""
			until := func(words string) {
				for !strings.Contains(said, words) {
					some := make([]byte, 4096)
					n, err := keyboard.Read(some)
					said += string(some[:n])
					require.NoError(t, err, said)
				}
			}
			until("ready> ")
			_, err = keyboard.WriteString("dmutex ser\t--algorithm=ce\t--algorithm su\t--grou\tx --listen=y\r")
			require.NoError(t, err)
			until("--listen=y: give HOST:PORT")
		})
	}
}
