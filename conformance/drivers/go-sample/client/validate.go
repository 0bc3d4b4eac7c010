package client

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"gosample/mistake"
	"gosample/payload"
)

func sortedNames(item Item) []string { return slices.Sorted(maps.Keys(item)) }

// checks are the rules for single fields, as PUSH-4 lists them. A field that is absent is not
// checked, unless the rule is also in required.
var checks = []struct {
	field string
	rule  string
	valid func(any) bool
}{
	{"class", "a text that is not empty", name},
	{"args", "an array", array},
	{"at", "a number", func(v any) bool { _, ok := float(v); return ok }},
	{"queue", "a text that is not empty", name},
	{"retry", "true, false, null or an integer not below 0", flagOrCount},
	{"retry_for", "null or a number from 0 to 1,000,000,000", func(v any) bool {
		seconds, ok := float(v)
		return v == nil || ok && seconds >= 0 && seconds <= 1e9
	}},
	{"backtrace", "true, false, null or an integer not below 0", flagOrCount},
	{"tags", "null or an array of texts", func(v any) bool { return v == nil || texts(v) }},
	{"log_level", "null, 0 to 5, debug, info, warn, error or fatal", logLevel},
	{"jid", "null or a text", func(v any) bool { _, ok := v.(string); return v == nil || ok }},
	{"created_at", "null or a number", func(v any) bool { _, ok := float(v); return v == nil || ok }},
}

// validate refuses an item that a worker could not handle. [PUSH-4] [SCHED-4]
func validate(job payload.Object) error {
	for _, check := range checks {
		if mistake.Made("unchecked-" + strings.ReplaceAll(check.field, "_", "-")) {
			continue
		}
		if value, present := job.Get(check.field); present && !check.valid(value) {
			return fmt.Errorf("%s: %.100v is not %s [PUSH-4]", check.field, value, check.rule)
		}
	}
	if at, present := job.Get("at"); present {
		seconds, _ := float(at)
		return checkTime("at", seconds)
	}
	return nil
}

// checkComplete refuses a job from which middleware removed a field. [PUSH-18]
func checkComplete(job payload.Object) error {
	if mistake.Made("unchecked-after-middleware") {
		return nil
	}
	for _, field := range []string{"class", "args", "jid", "queue", "retry"} {
		if value, present := job.Get(field); !present || field == "jid" && (value == nil || value == "") {
			return fmt.Errorf("%s: middleware removed it [PUSH-18]", field)
		}
	}
	return nil
}

func name(value any) bool {
	text, ok := value.(string)
	return ok && text != ""
}

func array(value any) bool {
	_, ok := value.([]any)
	return ok
}

func flagOrCount(value any) bool {
	if _, isFlag := value.(bool); isFlag || value == nil {
		return true
	}
	isInteger, negative := whole(value)
	return isInteger && !negative
}

func texts(value any) bool {
	items, ok := value.([]any)
	return ok && !slices.ContainsFunc(items, func(item any) bool { _, ok := item.(string); return !ok })
}

func logLevel(value any) bool {
	switch value {
	case nil, "debug", "info", "warn", "error", "fatal":
		return true
	}
	isInteger, negative := whole(value)
	level, _ := float(value)
	return isInteger && !negative && level <= 5
}
