package main

import (
	"time"

	"gosample/client"
	"gosample/payload"
)

// route changes or stops a routed job, as its first argument says. A client middleware.
func route(job *payload.Object) (goOn bool) {
	if class, _ := job.Get("class"); class != "JobwireRouted" {
		return true
	}
	args, _ := job.Get("args")
	for name, value := range args.([]any)[0].(map[string]any) {
		if name == "stop" && value == true {
			return false
		}
		job.Set(name, value)
	}
	return true
}

// unwritable replaces texts in the jobs of two classes by values that JSON does not have: in the
// arguments of one, and anywhere in the other.
func unwritable(item client.Item) {
	switch item["class"] {
	case "JobwireNative":
		item["args"] = replaced(item["args"], "native", time.Now())
	case "JobwireHalf":
		for name := range item {
			item[name] = replaced(item[name], "half", "a\xffb")
		}
	}
}

// replaced returns a value with another one in the place of a text, names of members included.
func replaced(value any, text string, by any) any {
	switch value := value.(type) {
	case string:
		if value == text {
			return by
		}
	case []any:
		for i := range value {
			value[i] = replaced(value[i], text, by)
		}
	case map[string]any:
		for name, inner := range value {
			delete(value, name)
			if key, ok := replaced(name, text, by).(string); ok {
				name = key
			}
			value[name] = replaced(inner, text, by)
		}
	}
	return value
}
