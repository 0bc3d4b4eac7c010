// Adapter of go-workers2 for the conformance suite: `adapter driver` or `adapter worker`.
package main

import (
	"fmt"
	"log"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	workers "github.com/digitalocean/go-workers2"
)

func options(poll time.Duration) workers.Options {
	where, err := url.Parse(os.Getenv("JOBWIRE_REDIS_URL"))
	if err != nil {
		log.Fatal(err)
	}
	database, _ := strconv.Atoi(strings.TrimPrefix(where.Path, "/"))
	password, _ := where.User.Password() // there is no option for the user
	return workers.Options{
		ServerAddr:   where.Host,
		Password:     password,
		Database:     database,
		PoolSize:     30,
		PollInterval: poll,
		// An operator who wants recovery gives the next process the id of the one before it.
		ProcessID: "1",
		Logger:    log.New(os.Stderr, "", log.LstdFlags),
	}
}

func main() {
	// It has a logger of its own beside the one in the options; standard output is for answers.
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
