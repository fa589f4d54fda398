module github.com/dmutex/dmutex/integration

go 1.26.0

require github.com/dmutex/dmutex v0.0.0

replace github.com/dmutex/dmutex => ../
