// Package evict asks a member of a group to evict another one.
package evict

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool"
)

// Cmd is dmutex evict.
type Cmd struct {
	Members []dmutex.NodeID `arg:"" name:"N" help:"The numbers of the members whose processes are dead: all of them at once, since each alone would wait for the others."`
	At      *url.URL        `required:"" placeholder:"URL" help:"Where another member serves nodehttp.Evict, such as http://localhost:8080/evict."`
	Yes     bool            `help:"Do not ask."`
	Timeout time.Duration   `default:"30s" least:"1ms" help:"Give up after this long."`
}

// Help is the text of evict --help.
func (Cmd) Help() string {
	return `A group waits for a crashed member until it is started again. If its machine is gone for good, evict the member: ` +
		`the others go on without it, and the locks that it held are free. All other members must be up. The member rejoins when ` +
		`a new process with its number starts.

` + danger + `

Ask any other member whose program serves nodehttp.Evict: the command sends it a POST with member=N, and may be repeated.

If the member restarts before the others have agreed, the command fails and says so: do not repeat it then, because ` +
		`it would evict the new process. If the member answers, it is not dead, and the command fails, too.

Exit status: 0 if the group goes on without the member; 2 if the command line is wrong; 3 if it was not confirmed, the member has restarted or answered, or the ` +
		`group did not agree in time: in the last case repeat it, because it is not certain whether anything has changed.`
}

const danger = `No member can tell whether the process is dead; they believe you. If it still runs, it may hold a lock together with another ` +
	`member until it hears from one of them. Make sure first, for example by cutting the power of its machine.`

// Validate refuses an address that cannot be that of a handler, and wrong numbers.
func (c *Cmd) Validate() error {
	switch {
	case c.At == nil: // the error is that it is missing
		return nil
	case slices.Contains(c.Members, dmutex.None):
		return errors.New("give the number of the member, from 1 on")
	case c.At.Scheme != "http" && c.At.Scheme != "https" || c.At.Host == "":
		return fmt.Errorf("--at=%s: give the whole address, such as http://localhost:8080/evict", c.At.Redacted())
	}
	return nil
}

// Run evicts the member when that is confirmed.
func (c *Cmd) Run(con *tool.Console) error {
	if !c.Yes && !c.confirmed(con) {
		return errors.New("nothing was done: the eviction was not confirmed")
	}
	ctx, stop := tool.Interruptible()
	defer stop()
	ctx, cancel := context.WithTimeoutCause(ctx, c.Timeout, fmt.Errorf("no answer within %v", c.Timeout))
	defer cancel()
	answer, err := c.post(ctx)
	if err != nil {
		return fmt.Errorf("evict %v: %w", c.Members, err)
	}
	fmt.Fprintln(con, answer)
	return nil
}

func (c *Cmd) confirmed(con *tool.Console) bool {
	fmt.Fprintf(con.Err, "%s\n\nAre the processes of the members %v dead, and will they stay so? Type yes to evict them: ", tool.Wrap(danger), c.Members)
	answer, _ := bufio.NewReader(con.In).ReadString('\n') // no answer is not yes
	return strings.TrimSpace(answer) == "yes"
}

func (c *Cmd) post(ctx context.Context) (answer string, err error) {
	form := make(url.Values)
	for _, id := range c.Members {
		form.Add("member", id.String())
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.At.String(), strings.NewReader(form.Encode()))
	if err != nil {
		return "", err
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	response, err := client.Do(r)
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 4<<10))
	answer = strings.TrimSpace(string(body))
	switch {
	case response.StatusCode != http.StatusOK:
		return "", fmt.Errorf("%s answers %s: %s", c.At.Redacted(), response.Status, answer)
	case err != nil:
		return "", err
	}
	return answer, nil
}
