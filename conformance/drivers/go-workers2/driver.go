package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"runtime/debug"
	"time"

	workers "github.com/digitalocean/go-workers2"
)

type request struct {
	ID  int                        `json:"id"`
	Op  string                     `json:"op"`
	Job map[string]json.RawMessage `json:"job"`
	At  *json.RawMessage           `json:"at"`
	In  *json.RawMessage           `json:"in"`
}

type answer map[string]any

func refused(kind, format string, values ...any) answer {
	return answer{"error": answer{"kind": kind, "message": fmt.Sprintf(format, values...)}}
}

// push counts values that a caller cannot write in Go as refused: class and queue are strings,
// times are numbers, and only some options of a job exist.
func push(producer *workers.Producer, asked request) answer {
	job := struct {
		Class string `json:"class"`
		Queue string `json:"queue"`
	}{Queue: "default"}
	var options workers.EnqueueOptions
	for name, raw := range asked.Job {
		var err error
		switch name {
		case "args":
		case "class":
			err = json.Unmarshal(raw, &job.Class)
		case "queue":
			err = json.Unmarshal(raw, &job.Queue)
		case "retry":
			if err = json.Unmarshal(raw, &options.Retry); err != nil {
				options.Retry = true
				err = json.Unmarshal(raw, &options.RetryMax)
			}
		default:
			return answer{"unsupported": true}
		}
		if err != nil {
			return refused("rejected", "%s: %s", name, err)
		}
	}
	var args any // json.RawMessage keeps the exact numbers of a case, as int64 would
	if raw, given := asked.Job["args"]; given {
		args = raw
	}
	at := time.Time{}
	for _, raw := range []*json.RawMessage{asked.At, asked.In} {
		if raw == nil {
			continue
		}
		var seconds float64
		if err := json.Unmarshal(*raw, &seconds); err != nil {
			return refused("rejected", "time: %s", err)
		}
		at = time.Unix(0, int64(seconds*1e9))
		if asked.In != nil {
			at = time.Now().Add(time.Duration(seconds * 1e9))
		}
	}
	if !at.IsZero() {
		options.At = float64(at.UnixNano()) / workers.NanoSecondPrecision
	}
	jid, err := producer.EnqueueWithOptions(job.Queue, job.Class, args, options)
	if err != nil {
		return refused("unknown", "%s", err)
	}
	return answer{"ok": answer{"jid": jid}}
}

func version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, module := range info.Deps {
			if module.Path == "github.com/digitalocean/go-workers2" {
				return module.Version
			}
		}
	}
	return "unknown"
}

func drive() {
	producer, err := workers.NewProducer(options(time.Second))
	if err != nil {
		log.Fatal(err)
	}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 8<<20)
	for lines.Scan() {
		var asked request
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
			log.Fatal(err)
		}
		result := answer{"unsupported": true}
		switch asked.Op {
		case "hello":
			result = answer{"ok": answer{"driver": 1, "version": version(), "ops": []string{"push"}}}
		case "push":
			result = push(producer, asked)
		case "bye":
			result = answer{"ok": answer{}}
		}
		result["id"] = asked.ID
		line, err := json.Marshal(result)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(string(line))
		if asked.Op == "bye" {
			return
		}
	}
}
