package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"gosample/payload"
)

// step is one of schema/portable-case.json; numbers keep their spelling.
type step struct {
	Request, Answer, Reply json.RawMessage
	Outcome, Check         string
	Bind                   map[string]string
	Send                   []json.RawMessage
}

// nothing stands for a member that is not there.
type nothing struct{}

// run is the start of a case, and the values that it kept under names.
type run struct {
	began time.Time
	kept  map[string]any
}

var around = regexp.MustCompile(`\{\s*"\$":\s*"now",\s*"plus":\s*([^}\s]+)\s*\}`)

// TestCases runs portable cases, without the suite, in a database that it empties:
//
//	jobwire conform export cases client/core client/bulk client/scheduled
//	JOBWIRE_CASES=$PWD/cases JOBWIRE_REDIS_URL=redis://127.0.0.1:6379/15 go test ./cmd/driver
func TestCases(t *testing.T) {
	files, _ := filepath.Glob(os.Getenv("JOBWIRE_CASES") + "/*.json")
	c, err := newClient()
	if len(files) == 0 || err != nil {
		t.Skip("no cases, or no server: ", err)
	}
	for _, file := range files {
		text, _ := os.ReadFile(file)
		var one struct{ Needs, Steps []json.RawMessage }
		if err := json.Unmarshal(text, &one); err != nil || len(one.Needs) > 0 {
			continue // it needs an optional feature
		}
		t.Run(strings.TrimSuffix(filepath.Base(file), ".json"), func(t *testing.T) {
			c.Pool.Do("FLUSHDB")
			r, answered := run{time.Now(), map[string]any{}}, any(nil)
			for _, text := range one.Steps {
				var s step
				json.Unmarshal(text, &s)
				seen, wanted := answered, `{"$": "has", "is": `+string(s.Answer)+`}`
				if s.Request != nil {
					result, _ := answer(c, `{"id":1,`+filled(s.Request)[1:])
					answered = worded(result)
					if outcome := get(answered, "outcome"); s.Outcome != "" && outcome != s.Outcome {
						t.Errorf("%s: %v", s.Request, answered)
					}
					r.bind(s.Bind, answered)
				}
				if s.Send != nil {
					seen, wanted = exact(c.Pool.Do(words(s.Send)...)), string(s.Reply)
				}
				if s.Check != "" && !r.fits(parsed(wanted), seen) {
					t.Errorf("[%s] %s: expected %s, seen %v", s.Check, s.Send, wanted, seen)
				}
			}
		})
	}
}

// fits reports whether a value fits a matcher, or equals a literal, which may hold matchers.
func (r run) fits(matcher, seen any) bool {
	if list, is := matcher.([]any); is {
		others, is := seen.([]any)
		is = is && len(list) == len(others)
		for i := 0; is && i < len(list); i++ {
			is = r.fits(list[i], others[i])
		}
		return is
	}
	if _, is := matcher.(payload.Object); !is {
		return reflect.DeepEqual(matcher, seen)
	}
	text, isText := seen.(string)
	wanted, name := get(matcher, "is"), fmt.Sprint(get(matcher, "name"))
	switch get(matcher, "$") {
	case nothing{}:
		object, is := seen.(payload.Object)
		return is && len(object) == len(matcher.(payload.Object)) && r.has(matcher, seen)
	case "absent":
		return seen == nil || seen == nothing{}
	case "any":
		r.kept[name] = seen
		return seen != nothing{}
	case "same":
		return reflect.DeepEqual(r.kept[name], seen)
	case "type":
		return kind(seen) == wanted
	case "pattern":
		return isText && regexp.MustCompile(wanted.(string)).MatchString(text)
	case "has":
		return r.has(wanted, seen)
	case "json":
		parts, _ := get(matcher, "contains").([]any)
		for _, part := range parts {
			isText = isText && strings.Contains(text, part.(string))
		}
		return isText && r.has(wanted, parsed(text))
	case "range":
		low, high := number(get(matcher, "min"), math.Inf(-1)), number(get(matcher, "max"), math.Inf(1))
		return number(seen, math.NaN()) >= low && number(seen, math.NaN()) <= high
	case "time":
		at, within := number(seen, math.NaN()), number(get(matcher, "within"), 0)
		if get(matcher, "unit") == "ms" {
			at /= 1000
		}
		first, last := get(matcher, "of"), get(matcher, "of")
		plus := number(get(first, "plus"), 0)
		low, high := number(first, seconds(r.began)+plus), number(last, seconds(time.Now())+plus)
		return at >= low-within && at <= high+within
	}
	return false
}

// has reports whether an object has members that fit.
func (r run) has(wanted, seen any) bool {
	object, is := seen.(payload.Object)
	for _, member := range wanted.(payload.Object) {
		is = is && r.fits(member.Value, get(object, member.Name))
	}
	return is
}

// bind keeps members of an answer; the elements of a list also with their number.
func (r run) bind(names map[string]string, answered any) {
	for member, name := range names {
		r.kept[name] = get(answered, member)
		list, _ := r.kept[name].([]any)
		for i, part := range list {
			r.kept[fmt.Sprintf("%s_%d", name, i)] = part
		}
	}
}

// get returns a member of an object, or nothing.
func get(object any, name string) any {
	if members, is := object.(payload.Object); is {
		if value, present := members.Get(name); present {
			return value
		}
	}
	return nothing{}
}

// worded returns an answer of the program in the words of the cases.
func worded(result payload.Object) payload.Object {
	members, is := get(result, "ok").(payload.Object)
	outcome := any("ok")
	if !is {
		members, _ = get(result, "error").(payload.Object)
		outcome = get(members, "kind")
	}
	text, _ := payload.Encode(append(payload.Object{{Name: "outcome", Value: outcome}}, members...), "")
	return parsed(text).(payload.Object)
}

// filled returns a text with numbers in place of its times around now.
func filled(text json.RawMessage) string {
	return around.ReplaceAllStringFunc(string(text), func(found string) string {
		plus, _ := strconv.ParseFloat(around.FindStringSubmatch(found)[1], 64)
		return strconv.FormatFloat(seconds(time.Now())+plus, 'f', 6, 64)
	})
}

// words returns the words of a command; numbers are sent as they are spelled.
func words(send []json.RawMessage) []string {
	found := make([]string, len(send))
	for i, text := range send {
		if json.Unmarshal(text, &found[i]) != nil {
			found[i] = filled(text)
		}
	}
	return found
}

// exact returns a reply of Redis in the types of parsed JSON.
func exact(reply any, _ error) any {
	switch value := reply.(type) {
	case int64:
		return payload.Number(strconv.FormatInt(value, 10))
	case []any:
		for i := range value {
			value[i] = exact(value[i], nil)
		}
	}
	return reply
}

func parsed(text string) any {
	value, _ := payload.Parse(text, requestDepth)
	return value
}

func seconds(at time.Time) float64 { return float64(at.UnixMicro()) / 1e6 }

// number returns a number, or the number that a text spells, or another one.
func number(value any, otherwise float64) float64 {
	if found, err := strconv.ParseFloat(fmt.Sprint(value), 64); err == nil {
		return found
	}
	return otherwise
}

func kind(value any) string {
	switch value := value.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case payload.Number:
		if value.IsInteger() {
			return "integer"
		}
		return "float"
	case string:
		return "string"
	case []any:
		return "array"
	case payload.Object:
		return "object"
	}
	return ""
}
