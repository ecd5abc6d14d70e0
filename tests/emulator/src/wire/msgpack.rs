//! A MessagePack writer with what event payloads need, each value in its shortest form.

/// Bytes under construction.
#[derive(Debug, Default)]
pub(super) struct Writer(Vec<u8>);

impl Writer {
    pub(super) fn finish(self) -> Vec<u8> {
        self.0
    }

    pub(super) fn nil(&mut self) {
        self.0.push(0xc0);
    }

    pub(super) fn float(&mut self, value: f64) {
        self.0.push(0xcb);
        self.0.extend(value.to_be_bytes());
    }

    pub(super) fn uint(&mut self, value: u64) {
        if let Ok(small) = u8::try_from(value) {
            match small {
                0..=0x7f => self.0.push(small),
                _ => self.0.extend([0xcc, small]),
            }
        } else if let Ok(short) = u16::try_from(value) {
            self.0.push(0xcd);
            self.0.extend(short.to_be_bytes());
        } else if let Ok(word) = u32::try_from(value) {
            self.0.push(0xce);
            self.0.extend(word.to_be_bytes());
        } else {
            self.0.push(0xcf);
            self.0.extend(value.to_be_bytes());
        }
    }

    pub(super) fn text(&mut self, value: &str) {
        self.header(value.len(), Some((0xa0, 31)), Some(0xd9), [0xda, 0xdb]);
        self.0.extend(value.as_bytes());
    }

    pub(super) fn bytes(&mut self, value: &[u8]) {
        self.header(value.len(), None, Some(0xc4), [0xc5, 0xc6]);
        self.0.extend(value);
    }

    pub(super) fn array(&mut self, len: usize) {
        self.header(len, Some((0x90, 15)), None, [0xdc, 0xdd]);
    }

    pub(super) fn map(&mut self, len: usize) {
        self.header(len, Some((0x80, 15)), None, [0xde, 0xdf]);
    }

    /// A map header in its 16-bit form, even for a short map.
    pub(super) fn map16(&mut self, len: u16) {
        self.0.push(0xde);
        self.0.extend(len.to_be_bytes());
    }

    /// Length with the markers of the forms that the type has: in the marker itself (marker, largest), 8 bits, 16 bits
    /// and 32 bits.
    fn header(&mut self, len: usize, fix: Option<(u8, u8)>, eight: Option<u8>, [sixteen, rest]: [u8; 2]) {
        match (u8::try_from(len), u16::try_from(len), fix, eight) {
            (Ok(len), _, Some((marker, most)), _) if len <= most => self.0.push(marker | len),
            (Ok(len), _, _, Some(marker)) => self.0.extend([marker, len]),
            (_, Ok(len), _, _) => {
                self.0.push(sixteen);
                self.0.extend(len.to_be_bytes());
            }
            _ => {
                self.0.push(rest);
                self.0.extend(u32::try_from(len).unwrap_or(u32::MAX).to_be_bytes());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rmpv::Value;

    use super::*;

    /// Writes a value and reads it back with another implementation; the marker byte comes with it.
    fn read(write: impl FnOnce(&mut Writer)) -> (u8, Value) {
        let mut writer = Writer::default();
        write(&mut writer);
        let bytes = writer.finish();
        let mut rest = bytes.as_slice();
        let value = rmpv::decode::read_value(&mut rest).unwrap();
        assert!(rest.is_empty());
        (bytes[0], value)
    }

    #[test]
    fn unsigned_integers_take_their_shortest_form() {
        let cases: [(u64, u8); 9] = [
            (0, 0x00),
            (127, 0x7f),
            (128, 0xcc),
            (255, 0xcc),
            (256, 0xcd),
            (65_535, 0xcd),
            (65_536, 0xce),
            (u64::from(u32::MAX), 0xce),
            (u64::MAX, 0xcf),
        ];
        for (value, marker) in cases {
            assert_eq!(read(|w| w.uint(value)), (marker, Value::from(value)));
        }
    }

    #[test]
    fn lengths_take_their_shortest_form() {
        for (len, marker) in [(0, 0xa0), (31, 0xbf), (32, 0xd9), (255, 0xd9), (256, 0xda), (70_000, 0xdb)] {
            let text = "x".repeat(len);
            assert_eq!(read(|w| w.text(&text)), (marker, Value::from(text.as_str())));
        }
        for (len, marker) in [(0, 0xc4), (255, 0xc4), (256, 0xc5), (70_000, 0xc6)] {
            let bytes = vec![7; len];
            assert_eq!(read(|w| w.bytes(&bytes)), (marker, Value::from(bytes.as_slice())));
        }
        for (len, marker) in [(0, 0x90), (15, 0x9f), (16, 0xdc), (70_000, 0xdd)] {
            let (found, value) = read(|w| {
                w.array(len);
                (0..len).for_each(|_| w.nil());
            });
            assert_eq!((found, value.as_array().unwrap().len()), (marker, len));
        }
    }
}
