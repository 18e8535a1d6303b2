package redisstore

import "bytes"

// slots is the number of hash slots of a Redis Cluster.
const slots = 16384

// slot is the hash slot of a key: CRC16 of what stands between the first { and the next },
// or of the whole key if there is no such part or nothing is in it
// (https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/#hash-tags).
func slot(key []byte) uint16 {
	if _, after, ok := bytes.Cut(key, []byte("{")); ok {
		if tag, _, ok := bytes.Cut(after, []byte("}")); ok && len(tag) > 0 {
			key = tag
		}
	}
	return crc16(key) % slots
}

// crc16 is CRC-16/XMODEM: polynomial 0x1021, most significant bit first, starting at 0.
func crc16(data []byte) uint16 {
	var crc uint16
	for _, b := range data {
		crc = crc<<8 ^ crcTable[byte(crc>>8)^b]
	}
	return crc
}

var crcTable = makeCRCTable()

func makeCRCTable() (table [256]uint16) {
	for i := range table {
		crc := uint16(i) << 8
		for range 8 {
			carry := crc&0x8000 != 0
			crc <<= 1
			if carry {
				crc ^= 0x1021
			}
		}
		table[i] = crc
	}
	return table
}
