// Reads partitions with franz-go, from the beginning to an offset: ADDRESS TOPIC PARTITION END [TOPIC PARTITION END]...
// A line is [topic, partition, offset, timestamp, key, value], bytes in base64, -1 for no timestamp.
package main

import (
	"context"
	"encoding/json"
	"log"
	"os"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func number(word string) int64 {
	found, err := strconv.ParseInt(word, 10, 64)
	if err != nil {
		log.Fatal(err)
	}
	return found
}

func main() {
	type place struct {
		topic     string
		partition int32
	}
	words := os.Args[2:]
	wanted := map[string]map[int32]kgo.Offset{}
	left := map[place]int64{}
	for ; len(words) > 0; words = words[3:] {
		at := place{words[0], int32(number(words[1]))}
		if wanted[at.topic] == nil {
			wanted[at.topic] = map[int32]kgo.Offset{}
		}
		wanted[at.topic][at.partition] = kgo.NewOffset().AtStart()
		left[at] = number(words[2])
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(os.Args[1]), kgo.ConsumePartitions(wanted))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	limit, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	lines := json.NewEncoder(os.Stdout)
	for len(left) > 0 {
		fetches := client.PollFetches(limit)
		if errors := fetches.Errors(); len(errors) > 0 {
			log.Fatal(errors, left)
		}
		fetches.EachRecord(func(record *kgo.Record) {
			timestamp := int64(-1)
			if !record.Timestamp.IsZero() {
				timestamp = record.Timestamp.UnixMilli()
			}
			line := []any{record.Topic, record.Partition, record.Offset, timestamp, record.Key, record.Value}
			if err := lines.Encode(line); err != nil {
				log.Fatal(err)
			}
			if at := (place{record.Topic, record.Partition}); record.Offset+1 >= left[at] {
				delete(left, at)
			}
		})
	}
}
