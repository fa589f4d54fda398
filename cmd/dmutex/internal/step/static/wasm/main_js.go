// Command wasm is the page of dmutex step as a program in a browser: it defines the function page.
package main

import (
	"net/url"
	"syscall/js"

	"github.com/dmutex/dmutex/cmd/dmutex/internal/step/byhand"
)

func main() {
	js.Global().Set("page", js.FuncOf(func(_ js.Value, args []js.Value) any {
		fields, _ := url.ParseQuery(args[0].String()) // without what it cannot read
		body, _ := byhand.Page(fields)                // which says what is wrong
		return body
	}))
	select {}
}
