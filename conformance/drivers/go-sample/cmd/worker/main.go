// Command worker is the worker of `jobwire conform`: ours with the jobs of the suite.
package main

import (
	"flag"
	"log"
	"os"
	"strconv"
	"time"

	"gosample/client"
	"gosample/generation"
	"gosample/redis"
	"gosample/script"
	"gosample/worker"
)

func main() {
	scripts := flag.String("scripts", "lua", "directory of the scripts of the specification")
	basic := flag.Bool("basic", false, "fetch as Sidekiq does, so that a crash loses the running jobs")
	flag.Parse()
	if err := start(*scripts, !*basic); err != nil {
		log.Fatal(err)
	}
}

func start(directory string, reliable bool) error {
	library, err := script.Load(directory)
	if err != nil {
		return err
	}
	server, err := redis.Parse(setting("REDIS_URL", "redis://127.0.0.1:6379/0"), 5*time.Second)
	if err != nil {
		return err
	}
	report, err := redis.Parse(setting("CONTROL_URL", ""), 5*time.Second)
	if err != nil {
		return err
	}
	pool := &redis.Pool{Server: server}
	choice := generation.Parse(setting("GENERATION", "8"), pool)
	concurrency, _ := strconv.Atoi(setting("CONCURRENCY", "5"))
	suite := &suite{
		control: &redis.Pool{Server: report}, run: setting("RUN", "run"),
		client: &client.Client{Pool: pool, Generation: choice},
	}
	return worker.Run(worker.Options{
		Pool: pool, Scripts: library, Generation: choice,
		Queues: worker.ParseQueues(setting("QUEUES", "default")), Concurrency: concurrency, Reliable: reliable,
		Poll: seconds("POLL", 0), Beat: duration("BEAT", 10), Grace: duration("GRACE", 25),
		Definitions: suite.definitions(), Middleware: []worker.Middleware{skip}, Deaths: suite.deaths(),
	})
}

// setting returns a setting of the suite.
func setting(name, fallback string) string {
	if value := os.Getenv("JOBWIRE_" + name); value != "" {
		return value
	}
	return fallback
}

func seconds(name string, fallback float64) float64 {
	if value, err := strconv.ParseFloat(setting(name, ""), 64); err == nil {
		return value
	}
	return fallback
}

func duration(name string, fallback float64) time.Duration {
	return time.Duration(seconds(name, fallback) * float64(time.Second))
}
