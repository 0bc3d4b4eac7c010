// Adapter of go-workers2 for the conformance suite: `adapter driver` or `adapter worker`.
package main

import (
	"fmt"
	"log"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	workers "github.com/digitalocean/go-workers2"
)

func options(poll time.Duration) workers.Options {
	address, err := url.Parse(os.Getenv("JOBWIRE_REDIS_URL"))
	if err != nil {
		log.Fatal(err)
	}
	database, _ := strconv.Atoi(strings.TrimPrefix(address.Path, "/"))
	password, _ := address.User.Password() // there is no option for the user
	return workers.Options{
		ServerAddr:   address.Host,
		Password:     password,
		Database:     database,
		PoolSize:     30,
		PollInterval: poll,
		ProcessID:    "driver",
		Logger:       log.New(os.Stderr, "", log.LstdFlags),
	}
}

// instance returns the number of this worker among those that run, from 1. The package needs an id
// that no other process has, and that the next process has again, for recovery. The abstract socket
// that holds the number ends with the process.
func instance() string {
	for number := 1; number < 100; number++ {
		name := fmt.Sprintf("@go-workers2-%s-%d", os.Getenv("JOBWIRE_RUN"), number)
		if held, err := net.Listen("unix", name); err == nil {
			holder = held
			return strconv.Itoa(number)
		}
	}
	log.Fatal("no free number")
	return ""
}

var holder net.Listener

func main() {
	// The package has a second logger, which must not write to standard output: that is for answers.
	workers.Logger = log.New(os.Stderr, "go-workers2: ", log.LstdFlags)
	switch {
	case len(os.Args) == 2 && os.Args[1] == "driver":
		drive()
	case len(os.Args) == 2 && os.Args[1] == "worker":
		work()
	default:
		fmt.Fprintln(os.Stderr, "usage: adapter driver|worker")
		os.Exit(64)
	}
}
