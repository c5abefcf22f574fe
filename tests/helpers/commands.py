"""Commands as they are run from a shell, in this process."""


def run(main, *arguments: object) -> None:
    main([str(each) for each in arguments])
