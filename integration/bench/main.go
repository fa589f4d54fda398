package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == serveArg {
		if err := serve(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run is the program. It writes the tables to out, and the number of each round to progress.
func run(ctx context.Context, args []string, out, progress io.Writer) (err error) {
	e := &env{served: make(map[string]client)}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(progress)
	rounds := flags.Int("rounds", 5, "how often each system has its turn, at least 1")
	each := flags.Duration("time", 300*time.Millisecond, "how long a turn lasts, more than 0")
	only := flags.String("only", "", "measure only what matches this regular expression, such as '^dmutex central, many$'; if nothing matches, the error lists all names")
	flags.StringVar(&e.profile, "cpuprofile", "", "write CPU profiles into this file, and with .1 and so on behind its name, of the servers and peers")
	flags.BoolVar(&e.external, "servers", true, "start the servers of other systems that are on the PATH")
	flags.StringVar(&e.redisAt, "redis", "", "address of a running Redis, host:port")
	flags.StringVar(&e.etcdAt, "etcd", "", "URL of a running etcd")
	flags.StringVar(&e.postgreAt, "postgres", "", "URL of a running PostgreSQL")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return nil
	} else if err != nil {
		return err
	}
	if *rounds < 1 || *each <= 0 || flags.NArg() > 0 {
		return errors.New("--rounds is at least 1, --time more than 0, and there are no other arguments")
	}
	if !rivals && e.redisAt+e.etcdAt+e.postgreAt != "" {
		return errors.New("--redis, --etcd and --postgres need a build with -tags rivals")
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var cancel context.CancelFunc
	e.ctx, cancel = context.WithCancel(ctx)
	defer cancel()
	if e.dir, err = os.MkdirTemp("", "bench"); err != nil {
		return err
	}
	defer os.RemoveAll(e.dir)
	defer e.close()

	match, err := regexp.Compile(*only)
	if err != nil {
		return err
	}
	list := slices.DeleteFunc(cells(), func(c cell) bool { return !match.MatchString(c.name()) })
	if len(list) == 0 {
		var names []string
		for _, c := range cells() {
			names = append(names, "\n  "+c.name())
		}
		return fmt.Errorf("--only %s matches none of these:%s", *only, strings.Join(names, ""))
	}
	if e.profile != "" {
		stop, err := startProfile(e.profile)
		if err != nil {
			return err
		}
		defer stop()
	}
	r, absent, err := measure(ctx, e, list, *rounds, *each, func(line string) { fmt.Fprintln(progress, line) })
	if err != nil {
		return err
	}
	report(out, r, absent)
	return nil
}
