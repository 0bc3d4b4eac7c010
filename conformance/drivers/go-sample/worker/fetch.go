package worker

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"gosample/mistake"
)

// Queue is a queue that a worker serves, with its weight.
type Queue struct {
	Name   string
	Weight int
}

// ParseQueues reads a list such as `a:5,b:1`, where digits behind the last colon are a weight.
func ParseQueues(text string) (queues []Queue) {
	for _, entry := range strings.Split(text, ",") {
		queue := Queue{Name: entry}
		if colon := strings.LastIndexByte(entry, ':'); colon >= 0 {
			if weight, err := strconv.Atoi(entry[colon+1:]); err == nil {
				queue = Queue{entry[:colon], weight}
			}
		}
		if queue.Name != "" {
			queues = append(queues, queue)
		}
	}
	return queues
}

// mode is strict, random or weighted. [FETCH-4]
func mode(queues []Queue) string {
	all := func(weight int) bool {
		return !slices.ContainsFunc(queues, func(q Queue) bool { return q.Weight != weight })
	}
	switch {
	case all(0):
		return "strict"
	case all(1):
		return "random"
	}
	return "weighted"
}

// order returns the names of the queues in the order in which the next fetch tries them. [FETCH-3]
func order(queues []Queue) []string {
	var names []string
	strict := mode(queues) == "strict"
	if mistake.Made("names-in-alphabetical-order") {
		queues = slices.SortedFunc(slices.Values(queues), func(a, b Queue) int { return strings.Compare(a.Name, b.Name) })
	}
	for _, queue := range queues {
		weight := max(queue.Weight, 1)
		switch {
		case mistake.Made("ignores-weights"):
			weight = 1
		case mistake.Made("weight-0-is-never") && !strict:
			weight = queue.Weight
		}
		for range weight {
			names = append(names, queue.Name)
		}
	}
	if !strict && mistake.Made("draws-one-queue") {
		return []string{names[rand.IntN(len(names))]}
	}
	if !strict {
		rand.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	}
	var distinct []string
	for _, name := range names {
		if !slices.Contains(distinct, name) || mistake.Made("tries-queues-twice") {
			distinct = append(distinct, name)
		}
	}
	return distinct
}
