"""Runs commands in this process as a shell would run them."""


def run(main, *arguments: object) -> None:
    main([str(each) for each in arguments])


def printed(capsys, main, *arguments: str) -> list[str]:
    main(list(arguments))
    return capsys.readouterr().out.splitlines()
