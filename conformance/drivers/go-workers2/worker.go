package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"
	"time"

	workers "github.com/digitalocean/go-workers2"
	"github.com/go-redis/redis/v8"
)

var (
	background = context.Background()
	control    *redis.Client
	producer   *workers.Producer
)

func key(name string) string { return "jw:" + os.Getenv("JOBWIRE_RUN") + ":" + name }

func report(event map[string]any) {
	line, err := json.Marshal(event)
	if err == nil {
		err = control.RPush(background, key("ev"), line).Err()
	}
	if err != nil {
		log.Print(err)
	}
}

// perform runs the standard jobs. A queue has one function, which therefore reads the class.
func perform(message *workers.Msg) error {
	jid, args := message.Jid(), json.RawMessage(message.Args().ToJson())
	report(map[string]any{"ev": "begin", "jid": jid, "args": args})
	err := act(message.Class(), jid, args)
	report(map[string]any{"ev": "end", "jid": jid, "ok": err == nil})
	return err
}

func act(class, jid string, args json.RawMessage) error {
	switch class {
	case "JobwireEcho":
		return nil
	case "JobwireFail":
		var messages []string
		if err := json.Unmarshal(args, &messages); err != nil || len(messages) != 1 {
			return fmt.Errorf("JobwireFail takes one message: %s", args)
		}
		return errors.New(messages[0])
	case "JobwireFlaky":
		var times []int64
		if err := json.Unmarshal(args, &times); err != nil || len(times) != 1 {
			return fmt.Errorf("JobwireFlaky takes one number: %s", args)
		}
		count, err := control.Incr(background, key("n:"+jid)).Result()
		if err == nil && count <= times[0] {
			err = fmt.Errorf("time %d of %d", count, times[0])
		}
		return err
	case "JobwireGate":
		var names []string
		if err := json.Unmarshal(args, &names); err != nil || len(names) != 1 {
			return fmt.Errorf("JobwireGate takes one name: %s", args)
		}
		return control.BLPop(background, 0, key("gate:"+names[0])).Err()
	case "JobwireSpawn":
		var jobs []struct {
			Class string          `json:"class"`
			Args  json.RawMessage `json:"args"`
			Queue string          `json:"queue"`
		}
		if err := json.Unmarshal(args, &jobs); err != nil || len(jobs) != 1 {
			return fmt.Errorf("JobwireSpawn takes one job: %s", args)
		}
		queue := jobs[0].Queue
		if queue == "" {
			queue = "default"
		}
		_, err := producer.Enqueue(queue, jobs[0].Class, jobs[0].Args)
		return err
	}
	return fmt.Errorf("unknown class %s", class)
}

func work() {
	address, err := redis.ParseURL(os.Getenv("JOBWIRE_CONTROL_URL"))
	if err != nil {
		log.Fatal(err)
	}
	address.ReadTimeout = -1 // gates may stay shut for a long time
	control = redis.NewClient(address)
	poll, err := strconv.ParseFloat(os.Getenv("JOBWIRE_POLL"), 64)
	if err != nil {
		log.Fatal(err)
	}
	chosen := options(time.Duration(poll * float64(time.Second)))
	chosen.ProcessID = instance()
	manager, err := workers.NewManager(chosen)
	if err != nil {
		log.Fatal(err)
	}
	producer = manager.Producer()
	concurrency, err := strconv.Atoi(os.Getenv("JOBWIRE_CONCURRENCY"))
	if err != nil {
		log.Fatal(err)
	}
	for _, queue := range strings.Split(os.Getenv("JOBWIRE_QUEUES"), ",") {
		// Weights are ignored, because each queue has executors of its own.
		if colon := strings.LastIndex(queue, ":"); colon >= 0 {
			if _, err := strconv.ParseUint(queue[colon+1:], 10, 32); err == nil {
				queue = queue[:colon]
			}
		}
		manager.AddWorker(queue, concurrency, perform)
	}
	manager.Run()
}
