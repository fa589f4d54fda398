// Command static writes the page of dmutex step as one file that needs no server:
//
//	go run ./cmd/dmutex/internal/step/static -o step.html
//
// The file has the machines in it, compiled to WebAssembly. It loads nothing and sends nothing.
package main

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/dmutex/dmutex/cmd/dmutex/internal/step/byhand"
)

//go:embed page.js
var glue string

func main() {
	log.SetFlags(0)
	out := flag.String("o", "step.html", "the file to write")
	flag.Parse()
	page, err := build()
	if err == nil {
		err = os.WriteFile(*out, page, 0o644)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// build returns the page. It needs the go command.
func build() ([]byte, error) {
	dir, err := os.MkdirTemp("", "step")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "program")
	// Without inlined calls the program is a little larger, and 7 % smaller when it is compressed.
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-gcflags=all=-l", "-ldflags=-s -w", "-o", file,
		"github.com/dmutex/dmutex/cmd/dmutex/internal/step/static/wasm")
	cmd.Env, cmd.Stderr = append(os.Environ(), "GOOS=js", "GOARCH=wasm", "GOFLAGS="), os.Stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%v: %w", cmd, err)
	}
	program, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return nil, err
	}
	runtime, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(root)), "lib/wasm/wasm_exec.js"))
	if err != nil {
		return nil, err
	}
	return document(program, string(runtime))
}

// document returns the page around a program and the script that comes with the compiler. Nothing but its own
// script runs on it, and it loads nothing.
func document(program []byte, runtime string) ([]byte, error) {
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(program); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	script := runtime + glue
	sum := sha256.Sum256([]byte(script))
	head := fmt.Sprintf(`<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-%s' 'wasm-unsafe-eval'; base-uri 'none'; form-action 'none'">
<script type="application/wasm" id="program">%s</script>
<script type="module">%s</script>
`, base64.StdEncoding.EncodeToString(sum[:]), base64.StdEncoding.EncodeToString(packed.Bytes()), script)
	return []byte(byhand.Document(head, "<p>Loading.</p>\n<noscript>This file needs JavaScript. The command dmutex step serves the page without it.</noscript>\n")), nil
}
