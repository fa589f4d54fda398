module github.com/dmutex/dmutex/cmd/dmutex

go 1.26.0

require github.com/dmutex/dmutex v0.0.0

replace github.com/dmutex/dmutex => ../..
