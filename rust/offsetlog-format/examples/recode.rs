//! Reads Kafka's requests and responses and writes them again, one line in, one line out: a test holds it against Kafka's own classes.
//!
//! A line is the name of a message, the version of its bytes, the version to write, and the bytes in hexadecimal digits, or `-` for a
//! message of defaults alone. `RequestHeader` and `ResponseHeader` have the API's key in front of them: `10/RequestHeader`. The answer is
//! JSON, with the message as Kafka's converters write it.

use offsetlog_format::cursor::Reader;
use offsetlog_format::error::Part;
use offsetlog_format::message::{Message, Struct, Value};
use offsetlog_format::protocol::{RequestHeader, ResponseHeader, api, apis};
use std::fmt::Write as _;
use std::io::{self, BufRead, Write};

type Answer = Result<String, String>;

fn main() -> io::Result<()> {
    let mut out = io::stdout().lock();
    for line in io::stdin().lock().lines() {
        let answer = answer(&line?).unwrap_or_else(|error| {
            let mut line = String::from("{\"error\":");
            quoted(&mut line, &error);
            line + "}"
        });
        writeln!(out, "{answer}")?;
        out.flush()?;
    }
    Ok(())
}

fn answer(line: &str) -> Answer {
    let words: Vec<&str> = line.split(' ').collect();
    let &[name, version, into, hex] = words.as_slice() else {
        return Err("four words are needed".to_owned());
    };
    let number = |word: &str| word.parse::<i16>().map_err(|error| error.to_string());
    let (version, into) = (number(version)?, number(into)?);
    let bytes = if hex == "-" { Vec::new() } else { unhex(hex)? };
    let mut reader = Reader::new(&bytes, Part::Protocol);
    if let Some((key, name)) = name.split_once('/') {
        return header(number(key)?, name, version, &mut reader);
    }
    let message = message(name).ok_or_else(|| format!("no message {name}"))?;
    let fields = match hex {
        "-" => Struct::new(),
        _ => message
            .read(version, &mut reader)
            .map_err(|error| error.to_string())?,
    };
    let mut written = Vec::new();
    message
        .write(into, &fields, &mut written)
        .map_err(|error| error.to_string())?;
    let mut json = String::new();
    structure(&mut json, &fields);
    Ok(reply(&json, &written, reader.remaining()))
}

fn reply(json: &str, written: &[u8], left: usize) -> String {
    let mut data = String::new();
    for byte in written {
        let _ = write!(data, "{byte:02x}");
    }
    format!("{{\"json\":{json},\"data\":\"{data}\",\"left\":{left}}}")
}

fn message(name: &str) -> Option<&'static Message> {
    let mut messages = apis::ALL
        .iter()
        .flat_map(|api| [&api.request, &api.response]);
    messages.find(|message| message.name == name)
}

fn header(key: i16, name: &str, version: i16, reader: &mut Reader<'_>) -> Answer {
    let mut json = String::new();
    let mut written = Vec::new();
    if name == "RequestHeader" {
        let header = RequestHeader::read(reader).map_err(|error| error.to_string())?;
        header
            .write(&mut written)
            .map_err(|error| error.to_string())?;
        let client_id = header.client_id.map(Value::text);
        let fields = Struct::new()
            .with("requestApiKey", header.api_key)
            .with("requestApiVersion", header.api_version)
            .with("correlationId", header.correlation_id)
            .with("clientId", client_id);
        structure(&mut json, &fields);
    } else {
        let api = api(key).ok_or("no such API")?;
        let header =
            ResponseHeader::read(api, version, reader).map_err(|error| error.to_string())?;
        header.write(api, version, &mut written);
        structure(
            &mut json,
            &Struct::new().with("correlationId", header.correlation_id),
        );
    }
    Ok(reply(&json, &written, reader.remaining()))
}

fn unhex(hex: &str) -> Result<Vec<u8>, String> {
    let pairs = hex.as_bytes().chunks(2);
    pairs
        .map(|pair| {
            let pair = std::str::from_utf8(pair).map_err(|error| error.to_string())?;
            u8::from_str_radix(pair, 16).map_err(|error| error.to_string())
        })
        .collect()
}

fn structure(out: &mut String, fields: &Struct<'_>) {
    out.push('{');
    for (place, (name, value)) in fields.fields.iter().enumerate() {
        if place > 0 {
            out.push(',');
        }
        // Kafka's converters show the size of records only.
        if let ("records", Value::Bytes(bytes)) = (*name, value) {
            let _ = write!(out, "\"recordsSizeInBytes\":{}", bytes.len());
        } else {
            quoted(out, name);
            out.push(':');
            shown(out, value);
        }
    }
    out.push('}');
}

fn shown(out: &mut String, value: &Value<'_>) {
    let _ = match value {
        Value::Null => out.write_str("null"),
        Value::Bool(bool) => write!(out, "{bool}"),
        Value::Int(number) => write!(out, "{number}"),
        Value::Float(number) => write!(out, "{number}"),
        Value::Records(bytes) => write!(out, "{bytes}"),
        Value::Uuid(id) => write!(out, "\"{id}\""),
        Value::Text(bytes) => {
            quoted(out, &String::from_utf8_lossy(bytes));
            Ok(())
        }
        Value::Bytes(bytes) => {
            quoted(out, &base64(bytes));
            Ok(())
        }
        Value::Array(elements) => {
            out.push('[');
            for (place, element) in elements.iter().enumerate() {
                if place > 0 {
                    out.push(',');
                }
                shown(out, element);
            }
            out.push(']');
            Ok(())
        }
        Value::Struct(fields) => {
            structure(out, fields);
            Ok(())
        }
    };
}

fn quoted(out: &mut String, text: &str) {
    out.push('"');
    for character in text.chars() {
        let _ = match character {
            '"' | '\\' => write!(out, "\\{character}"),
            '\0'..='\x1f' => write!(out, "\\u{:04x}", u32::from(character)),
            _ => write!(out, "{character}"),
        };
    }
    out.push('"');
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let byte = |place: usize| u32::from(three.get(place).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..4 {
            let index = (bits >> (18 - 6 * digit) & 63) as usize;
            let letter = DIGITS.get(index).filter(|_| digit <= three.len());
            text.push(letter.map_or('=', |letter| char::from(*letter)));
        }
    }
    text
}
